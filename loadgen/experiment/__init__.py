"""An experiment: arms x repeats, block by block, each block driven and scraped and stored."""
