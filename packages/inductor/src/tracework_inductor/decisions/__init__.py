"""What a plan leaves open, decided: which products are cores of ours, and the block sizes of kernels. They ask what autotune knows."""
