package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// The cache keeps the ids of recent words. It is bounded: each word has one slot it
// may be in, and takes it from whatever was there.
const (
	cacheSlots   = 1 << 14
	cacheMaxWord = 64 // bytes
)

// wordCache is safe for concurrent use without locks.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

// slot returns the place of word.
func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

// put copies word and ids into slot.
func (c *wordCache) put(slot *atomic.Pointer[cachedWord], word string, ids []int32) {
	slot.Store(&cachedWord{strings.Clone(word), append([]int32(nil), ids...)})
}
