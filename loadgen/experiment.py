"""An experiment: arms x repeats, driven and scraped, block by block."""
