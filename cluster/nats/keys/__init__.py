"""Keys of a bucket that several writers update by compare-and-set under faults."""
