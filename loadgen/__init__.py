"""loadgen: does KV-cache quantization pay on this engine, this GPU and this traffic?"""

__version__ = "0.1.0"
