"""The four causes for which a quantized cache may not pay, one file each."""
