package hostmem

import (
	"fmt"
	"sync/atomic"
)

// A Purpose is what memory is held for.
type Purpose uint8

// The purposes that are counted apart.
const (
	Weights Purpose = iota
	KV
	Activations
	Staging
	Cache
	Requests
	Other

	purposes = int(Other) + 1
)

var purposeNames = [purposes]string{"weights", "kv", "activations", "staging", "cache", "requests", "other"}

// String is the purpose's name in lower case.
func (p Purpose) String() string {
	if int(p) < purposes {
		return purposeNames[p]
	}
	return fmt.Sprintf("purpose(%d)", uint8(p))
}

// Purposes lists all purposes in order.
func Purposes() []Purpose {
	return []Purpose{Weights, KV, Activations, Staging, Cache, Requests, Other}
}

// A Ledger counts the bytes held for each purpose. Its zero value is empty and ready.
// All methods may be called from many goroutines; a reader sees each purpose exact,
// but not all of them at one instant. A nil Ledger counts nothing.
type Ledger struct {
	held [purposes]atomic.Int64
	peak [purposes]atomic.Int64
}

// Add counts n more bytes for p, or fewer where n is negative. [Alloc] and
// [Block.Release] call it; others call it for memory that they know of and this
// package does not, such as the touched pages of a mapping.
func (l *Ledger) Add(p Purpose, n int64) {
	if l == nil {
		return
	}
	now := l.held[p].Add(n)
	for {
		peak := l.peak[p].Load()
		if now <= peak || l.peak[p].CompareAndSwap(peak, now) {
			return
		}
	}
}

// Held is the bytes held for p now.
func (l *Ledger) Held(p Purpose) int64 {
	if l == nil {
		return 0
	}
	return l.held[p].Load()
}

// Peak is the most that was ever held for p.
func (l *Ledger) Peak(p Purpose) int64 {
	if l == nil {
		return 0
	}
	return l.peak[p].Load()
}

// Total is the bytes held for all purposes.
func (l *Ledger) Total() int64 {
	var n int64
	for p := range purposes {
		n += l.Held(Purpose(p))
	}
	return n
}
