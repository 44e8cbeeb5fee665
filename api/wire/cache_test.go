package wire

import "testing"

// TestCachesThatOutliveRequestsAreCounted: the ledger has all of them, requests wait for a part at most,
// and a body of the largest size still fits.
func TestCachesThatOutliveRequestsAreCounted(t *testing.T) {
	total := int64(0)
	m := NewMemory(90<<20, func(n int64) { total += n })
	c, ok := m.claim(t.Context(), 1<<10)
	if !ok {
		t.Fatal("no room for the first request")
	}
	c.Cache(100 << 20)
	if total != 100<<20+1<<10 {
		t.Errorf("%d bytes are counted, want %d", total, 100<<20+1<<10)
	}
	if _, ok := m.claim(t.Context(), m.MaxBody()+requestBytes); !ok {
		t.Error("the largest body does not fit beside full caches")
	}
	c.Cache(-100 << 20)
	if m.cached != 0 || m.held.used != 1<<10+m.MaxBody()+requestBytes {
		t.Errorf("%d bytes are held by requests, %d by caches", m.held.used, m.cached)
	}
	var none *Claim
	none.Cache(5)
}
