package cpu

// UsePairs makes b multiply pairs of bfloat16 even where this processor is slow at it.
func (b *Backend) UsePairs() { b.set.SlowPairs = false }
