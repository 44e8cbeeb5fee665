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
	requests := []int64{blockSize, 3 * blockSize, 64 << 10, maxRead}
	for range 50 {
		var regions []region
		for range 1 + rng.IntN(8) {
			off := rng.Int64N(int64(len(data)))
			regions = append(regions, region{path: path, off: off, size: rng.Int64N(min(int64(len(data))-off, 90_000) + 1)})
		}
		l := newLoad(regions, false)
		l.cut(requests[rng.IntN(len(requests))])
		block, err := hostmem.Alloc(nil, hostmem.Staging, int(l.slot)+1)
		if err != nil {
			t.Fatal(err)
		}
		f := files{open: map[string]*hostmem.DirectFile{}}
		for _, k := range rng.Perm(len(l.pieces)) {
			p := l.pieces[k]
			if err := l.extents[p.extent].fill(p, block.Bytes()[:l.slot], func(e *extent) (*hostmem.DirectFile, error) { return f.get(e.path, nil) }); err != nil {
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

// TestTheLastKiBOfABlockTookASeparateRead: the last few KiB of a block used to take a separate read, with its
// latency.
func TestTheLastKiBOfABlockTookASeparateRead(t *testing.T) {
	for _, c := range []struct {
		off, size int64
		pieces    int
	}{{0, maxRead, 1}, {0, 2 * maxRead, 2}, {100, 6*maxRead + 8192, 7}, {8, maxRead - 4, 2}, {0, 3*maxRead + 1, 4}, {5, 100, 1}, {0, 0, 0}} {
		e := extent{region: region{path: "shard", off: c.off, size: c.size}}
		pieces := e.cut(nil, 0, maxRead)
		if len(pieces) != c.pieces {
			t.Errorf("%+v: %d pieces", c, len(pieces))
		}
		at := int64(0)
		for i, p := range pieces {
			if p.begin != at || p.begin%blockSize != 0 || p.end-p.begin > maxRead {
				t.Errorf("%+v: piece %+v behind byte %d", c, p, at)
			}
			if each := pieces[0].end; i > 0 && p.end-p.begin < each-int64(len(pieces))*blockSize {
				t.Errorf("%+v: piece %+v, where others have %d bytes", c, p, each)
			}
			at = p.end
		}
		if at != e.lead()+c.size && c.size > 0 {
			t.Errorf("%+v: the pieces end at %d", c, at)
		}
	}
}
