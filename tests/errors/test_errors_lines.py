from loadgen.errors import LINE_CHARS, MOST_COMPLAINTS, ServerError, UserError


def test_a_complaint_is_one_line_whatever_it_quotes() -> None:
    complaint = "f.yaml: a\nb\r\u2028\x1b[31m\ud800é: unknown key"
    (line,) = UserError(complaint).complaints
    assert line == r"f.yaml: a\nb\r\u2028\x1b[31m\ud800é: unknown key"


def test_a_complaint_is_cut_where_nobody_reads_on() -> None:
    (line,) = UserError("a" * 5_000).complaints
    assert len(line) == LINE_CHARS
    assert line.endswith("a…")
    (line,) = UserError("\0" * 999).complaints
    assert len(line) == LINE_CHARS


def test_complaints_beyond_a_hundred_are_counted() -> None:
    complaints = UserError(*map(str, range(1_150)), more=1_000).complaints
    assert len(complaints) == MOST_COMPLAINTS + 1
    assert complaints[-2:] == ("99", "and 2,050 more")


def test_what_a_server_said_keeps_to_its_lines() -> None:
    assert str(ServerError("a\nb", ["c\x1b[0m", "d"])) == "a\\nb\n  | c\\x1b[0m\n  | d"
