package devicemap

import (
	"testing"

	"github.com/heftai/heft/meta"
)

// TestStreamedSizes: weights that take three quarters of their bytes in memory and all of them on the disk. The solver took
// them for as small on the disk as in memory.
func TestStreamedSizes(t *testing.T) {
	model := &meta.Model{Root: nested(4), NoSplitClasses: []string{"Block"}}
	loaded, streamed := map[*meta.Param]int64{}, map[*meta.Param]int64{}
	var all, small int64
	for _, p := range model.Root.AllParams() {
		all += p.Bytes()
		loaded[p], streamed[p] = p.Bytes()*3/4, p.Bytes()
		small += loaded[p]
	}
	policy := Policy{Loaded: loaded, Streamed: streamed}
	whole, err := Solve(model, []Budget{{Device: CPU, Limit: small}}, policy)
	if err != nil {
		t.Fatal(err)
	}
	if host := whole.Device(CPU); host.WeightsBytes != small || whole.DiskBytesPerToken != 0 {
		t.Errorf("with %d bytes: %d of weights in memory, %d read for a token, want %d and 0", small, host.WeightsBytes, whole.DiskBytesPerToken, small)
	}
	for limit := whole.Least; limit < small; limit += (small - whole.Least) / 8 {
		plan, err := Solve(model, []Budget{{Device: CPU, Limit: limit}}, policy)
		if err != nil {
			t.Fatal(err)
		}
		var disk, host, reads int64
		for path, p := range model.Root.AllParams() {
			if d, _ := plan.Map.Device(path); d == Disk {
				disk += streamed[p]
				if reads += streamed[p]; p.Shape[0] == 30 { // the table of a block, of which one row is read
					reads -= streamed[p] * 29 / 30
				}
			} else {
				host += loaded[p]
			}
		}
		if got := plan.Device(Disk).WeightsBytes; got != disk || plan.DiskBytesPerToken != reads || plan.Device(CPU).WeightsBytes != host {
			t.Errorf("with %d bytes: %d on the disk, %d read, %d in memory; the map has %d, %d and %d", limit, got, plan.DiskBytesPerToken,
				plan.Device(CPU).WeightsBytes, disk, reads, host)
		}
		if disk == 0 || disk > all || plan.Device(CPU).Used() > limit {
			t.Errorf("with %d bytes: %d of %d on the disk, %d used", limit, disk, all, plan.Device(CPU).Used())
		}
	}
}
