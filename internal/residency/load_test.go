package residency

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/hostmem"
)

func TestLoadPlacesEveryRegion(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	path := filepath.Join(t.TempDir(), "shard")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		var regions []region
		for range 1 + rng.IntN(8) {
			off := rng.Int64N(int64(len(data)))
			regions = append(regions, region{path: path, off: off, size: rng.Int64N(min(int64(len(data))-off, 90_000) + 1)})
		}
		l := newLoad(regions)
		block, err := hostmem.Alloc(nil, hostmem.Staging, int(l.slot)+1)
		if err != nil {
			t.Fatal(err)
		}
		f := files{open: map[string]*hostmem.DirectFile{}}
		for i := range l.extents {
			if err := l.extents[i].fill(block.Bytes()[:l.slot], func(e *extent) (*hostmem.DirectFile, error) { return f.get(e.path, nil) }); err != nil {
				t.Fatalf("regions %v: %v", regions, err)
			}
		}
		for i, r := range regions {
			if got := block.Bytes()[l.places[i]:][:r.size]; !bytes.Equal(got, data[r.off:r.off+r.size]) {
				t.Fatalf("region %d of %v holds other bytes", i, regions)
			}
		}
		f.close()
		if err := block.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
