package main

import (
	"testing"

	"github.com/heftai/heft/devicemap"
)

// TestBigVocabularyWarnsOnlyWithoutRoom: a vocabulary of 150,000 tokens raises the limit of Go's
// memory. serve warns only if the plan leaves less memory free than that; it warned at every start
// of such a model, even where most of the machine was free.
func TestBigVocabularyWarnsOnlyWithoutRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ limit, used, wantLimit, wantOver int64 }{
		{20000 * mib, 85 * mib, 265 * mib, 0},
		{272 * mib, 85 * mib, 265 * mib, 25 * mib},
		{282 * mib, 85 * mib, 265 * mib, 15 * mib},
		{272 * mib, 30 * mib, 240 * mib, 0},
		{200 * mib, 85 * mib, 265 * mib, 25 * mib}, // a limit below the minimum
	} {
		host := devicemap.DevicePlan{LimitBytes: c.limit, RuntimeBytes: 128 * mib, RequestBytes: 144 * mib}
		if limit, over := heapBytes(host, c.used); limit != c.wantLimit || over != c.wantOver {
			t.Errorf("limit %d, used %d: got %d, %d, want %d, %d", c.limit, c.used, limit, over, c.wantLimit, c.wantOver)
		}
	}
}
