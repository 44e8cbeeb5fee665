package backlog

import (
	"net"
	"testing"
)

// TestTheClientWithTheMostConnectionsMakesRoom: a flood from one address leaves the connections of others alone.
func TestTheClientWithTheMostConnectionsMakesRoom(t *testing.T) {
	w := newWaiting()
	if w.victim() != nil || w.longest() != nil {
		t.Error("an empty set has a connection")
	}
	for i, ip := range []string{"192.0.2.1", "192.0.2.2", "::ffff:192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"} {
		w.add(&held{id: int32(i), client: clientOf(&net.TCPAddr{IP: net.ParseIP(ip)})})
	}
	for _, want := range []int32{1, 3} { // two addresses of 2001:db8::/64 are one client
		h := w.victim()
		if h.id != want {
			t.Fatalf("connection %d makes room, want %d", h.id, want)
		}
		w.remove(h)
	}
	if got := w.victim(); got.id != 0 || w.longest() != got || w.len() != 4 || len(w.count) != 4 {
		t.Errorf("of %d connections with one client each, %d makes room, want the longest waiting", w.len(), got.id)
	}
}
