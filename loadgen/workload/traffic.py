"""The keys that say what requests look like: lengths, what they share, and how they hang together in sessions."""

from pydantic import Field

from loadgen.workload.fields import Count, Delays, Exponent, Keys, Lengths, Rate, Seconds, Share, Tokens

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
INPUT = "prompt tokens of a request: a number, {range: [64, 256]} or {quantiles: {50: 128, 100: 900}}"
OUTPUT = "output tokens of a request, in the same three forms; the server is made to generate exactly this many"
PREFIX = "let requests of one group begin with the same tokens (a system prompt)"


class SharedPrefix(Keys):
    """A prefix that groups of requests have in common."""

    tokens: Tokens = Field(description="length of the prefix; input_tokens include it")
    groups: Count = Field(default=1, description="number of different prefixes (tenants, applications)")
    zipf: Exponent | None = Field(
        default=None,
        description="group k sends a share proportional to 1 / k^zipf; without it requests take the groups in turn",
    )


class Families(Keys):
    """Requests that share more than the common prefix: several questions about one document."""

    size: Lengths = Field(description="requests of a family: a number, a range or quantiles")
    shared: Share = Field(
        description="share (0 to 1) of its shortest prompt that a family's prompts have in common, beyond the "
        "shared_prefix; a family's prompts are of similar length, and come in random order among the others"
    )


class Sessions(Keys):
    """Requests that follow each other, each with a prompt that goes on where the one before ended."""

    turns: Lengths = Field(description="requests of a session: a number, a range or quantiles")
    first_tokens: Lengths = Field(description="prompt tokens of the first turn, the shared_prefix among them")
    append_tokens: Lengths = Field(
        description="what each later prompt adds to the one before: the answer, as far as it is kept, and what is new"
    )
    think: Delays = Field(
        default=0, description="the client's delay before a turn: a time (10, 2m), or quantiles of times"
    )
    think_cap: Seconds | None = Field(default=None, description="think times above this are cut to it")
    compact_at: Tokens | None = Field(
        default=None,
        description="a prompt that would be longer is compacted: the session goes on with compact_to tokens, of which "
        "only the shared_prefix was there before; default: at max_input_tokens",
    )
    compact_to: Tokens | None = Field(default=None, description="default: as many as the session's first prompt has")


class Traffic(Keys):
    """What requests of one kind look like."""

    input_tokens: Lengths | None = Field(default=None, description=INPUT)
    output_tokens: Lengths | None = Field(default=None, description=OUTPUT)
    shared_prefix: SharedPrefix | None = Field(default=None, description=PREFIX)
    families: Families | None = Field(
        default=None,
        description="let requests come in families that share more (one document, several questions); not in stages "
        "that have input_tokens of their own",
    )
    sessions: Sessions | None = Field(
        default=None, description="in place of input_tokens: prompts that grow from turn to turn"
    )


class Class(Traffic):
    """One of several kinds of traffic that come mixed."""

    name: str = Field(pattern=NAME, max_length=40, description="letters, digits, dot, dash, underscore; unique")
    share: Rate = Field(description="its share of the requests, in proportion to the other classes'")
