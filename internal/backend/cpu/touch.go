package cpu

import (
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/tensor"
)

// Touch brings bytes [begin, end) of t into memory before they are written. It changes none.
func (b *Backend) Touch(t tensor.Tensor, begin, end int64) { hostmem.Touch(t.Data[begin:end]) }

// TouchActivations brings the memory of activations in, one huge page at a time, until more returns
// false. It changes no element and is safe for concurrent use.
func (b *Backend) TouchActivations(more func() bool) {
	b.mu.Lock()
	var keys []*byte
	for key, block := range b.blocks {
		if block.Purpose() == hostmem.Activations {
			keys = append(keys, key)
		}
	}
	b.mu.Unlock()
	for _, key := range keys {
		for at := 0; more() && b.touch(key, at); at += hostmem.HugePage {
		}
	}
}

// touch touches a huge page of a block. It reports whether the block exists and has this page.
func (b *Backend) touch(key *byte, at int) bool {
	b.mu.Lock() // Free waits
	defer b.mu.Unlock()
	block := b.blocks[key]
	if block == nil || at >= len(block.Bytes()) {
		return false
	}
	data := block.Bytes()[at:]
	hostmem.Touch(data[:min(len(data), hostmem.HugePage)])
	return true
}
