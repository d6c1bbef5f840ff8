"""Keys of a round, under the name by which strategies of one's own import them."""

from mapreduce.engine.leaf_ranges import LeafRange as LeafRange
from mapreduce.engine.leaf_ranges import block_key as block_key
from mapreduce.engine.leaf_ranges import block_of as block_of
