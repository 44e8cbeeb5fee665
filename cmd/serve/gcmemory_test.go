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
		{272 * mib, 85 * mib, 247 * mib, 7 * mib},
		{275 * mib, 85 * mib, 247 * mib, 4 * mib},
		{285 * mib, 85 * mib, 253 * mib, 0},
		{272 * mib, 30 * mib, 240 * mib, 0},
		{200 * mib, 85 * mib, 247 * mib, 7 * mib}, // a limit below the minimum
	} {
		host := devicemap.DevicePlan{LimitBytes: c.limit, RuntimeBytes: 128 * mib, RequestBytes: 144 * mib}
		if limit, over := heapBytes(host, c.used); limit != c.wantLimit || over != c.wantOver {
			t.Errorf("limit %d, used %d: got %d, %d, want %d, %d", c.limit, c.used, limit, over, c.wantLimit, c.wantOver)
		}
	}
}

// TestStreamingModelsWarnedOfTheirTokenizer: a model that streams leaves no memory free. serve
// warned at each start that its tokenizer takes more than planned, with one of 32,000 tokens that
// takes 15 MiB of 72.
func TestStreamingModelsWarnedOfTheirTokenizer(t *testing.T) {
	const mib = 1 << 20
	for _, requests := range []int64{16 * mib, 119 * mib, 144 * mib} {
		host := devicemap.DevicePlan{LimitBytes: 2000 * mib, WeightsBytes: 1928*mib - requests, RuntimeBytes: 72 * mib, RequestBytes: requests}
		if limit, over := heapBytes(host, 15*mib); over != 0 || limit > host.RuntimeBytes+requests {
			t.Errorf("%d MiB for requests: got a limit of %d MiB, %d over the plan's", requests/mib, limit/mib, over)
		}
	}
}
