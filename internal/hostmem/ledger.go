package hostmem

import (
	"fmt"
	"sync/atomic"
)

// A Purpose is the use of memory, such as weights.
type Purpose uint8

// The purposes.
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

// String returns the name of the purpose in lower case.
func (p Purpose) String() string {
	if int(p) < purposes {
		return purposeNames[p]
	}
	return fmt.Sprintf("purpose(%d)", uint8(p))
}

// Purposes returns all purposes in order.
func Purposes() []Purpose {
	return []Purpose{Weights, KV, Activations, Staging, Cache, Requests, Other}
}

// A Ledger counts the bytes held for each purpose. Its zero value is empty and ready. Any goroutine may
// call its methods. The counts of different purposes are not read at one instant. A nil Ledger counts
// nothing.
type Ledger struct {
	held [purposes]atomic.Int64
	peak [purposes]atomic.Int64
}

// Add counts n more bytes for p, or fewer if n is negative. [Alloc] and [Block.Release] call it. Other
// packages call it for memory that this package does not allocate.
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

// Held returns the bytes that are held for p now.
func (l *Ledger) Held(p Purpose) int64 {
	if l == nil {
		return 0
	}
	return l.held[p].Load()
}

// Peak returns the most bytes that were held for p at a time.
func (l *Ledger) Peak(p Purpose) int64 {
	if l == nil {
		return 0
	}
	return l.peak[p].Load()
}

// Total returns the bytes that are held for all purposes.
func (l *Ledger) Total() int64 {
	var n int64
	for p := range purposes {
		n += l.Held(Purpose(p))
	}
	return n
}
