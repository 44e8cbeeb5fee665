package api

import (
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/generatetest"
)

// TestStoredResponsesTakeAShareOfTheRequestsMemory: requests, idle connections and objects stored in memory are
// together within the plan's memory for requests.
func TestStoredResponsesTakeAShareOfTheRequestsMemory(t *testing.T) {
	m, _, _ := generatetest.Demo(t, engine.Options{})
	const n, connections = 1 << 24, 1<<24/connectionShare + silentConnections*silentBytes
	inMemory := newService(m, Options{Models: []*generate.Model{}})
	if got := inMemory.ofRequests(n) + connections + n/storeShare; got != n {
		t.Errorf("the shares of %d are %d together", n, got)
	}
	kept := inMemory.kept(m)
	if err := kept.Put("", "a", make([]byte, wire.DefaultMemory/storeShare-1024)); err != nil || !kept.InMemory() {
		t.Errorf("what is as large as its share: %v", err)
	}
	if err := kept.Put("", "a", make([]byte, wire.DefaultMemory/storeShare)); err == nil {
		t.Error("what is larger than its share is stored")
	}
	dir, err := store.Open(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	onDisk := newService(m, Options{Store: dir})
	if got := onDisk.ofRequests(n) + connections; got != n || onDisk.kept(m) != dir {
		t.Errorf("with a store on disk the shares of %d are %d together", n, got)
	}
}
