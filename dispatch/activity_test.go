package dispatch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// TestActivityCountsBlocks: the blocks' sizes sum up to the tiers, every pass counts each block once, and
// reads from disk count for the block whose weights they bring.
func TestActivityCountsBlocks(t *testing.T) {
	for name, s := range map[string]shape{
		"dense":   {hidden: 320, inner: 352, heads: 4, kv: 2, dim: 32, vocab: 515, layers: 2, dtype: meta.Float32, shift: 3},
		"experts": {hidden: 96, inner: 96, heads: 4, kv: 2, dim: 24, vocab: 230, layers: 3, dtype: meta.BFloat16, shift: 5, experts: true, choose: 2},
	} {
		for _, tier := range []devicemap.Device{devicemap.CPU, devicemap.Disk} {
			t.Run(name+" on "+string(tier), func(t *testing.T) { checkActivity(t, s, tier) })
		}
	}
}

func checkActivity(t *testing.T, s shape, tier devicemap.Device) {
	dir := s.folder(t, rand.New(rand.NewPCG(9, 9)))
	skeleton, checkpoint := open(t, dir)
	o := dispatch.Options{Threads: 2, Context: 128, MaxSequences: 8, MaxBatchTokens: 32, KVTokens: 8 * 128}
	bind := dispatch.CPUOffload
	if tier == devicemap.Disk {
		bind = dispatch.DiskOffload
	}
	m, err := bind(skeleton, checkpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	total, blocks := int64(0), m.Blocks()
	for _, b := range blocks {
		total += b.Bytes[tier]
	}
	if want := m.Status().TierBytes[tier]; total != want || want == 0 {
		t.Errorf("blocks have %d bytes, the tier has %d", total, want)
	}
	before := m.Activity()
	wander(t, m, 3)
	least := m.Activity().DiskBytes
	status := m.Status().TierReadBytes
	m.Close() // or the next blocks are read meanwhile
	after := m.Activity()
	read := int64(0)
	for i, b := range blocks {
		if runs := after.Runs[i] - before.Runs[i]; runs != after.Runs[0]-before.Runs[0] || runs < 3 {
			t.Errorf("%s has run %d times", b.Path, runs)
		}
		read += after.Read[i]
	}
	if read != after.DiskBytes {
		t.Errorf("blocks have read %d bytes, the model %d", read, after.DiskBytes)
	}
	if status < least || status > after.DiskBytes {
		t.Errorf("status says that %d bytes were read, want %d to %d", status, least, after.DiskBytes)
	}
	if onDisk := tier == devicemap.Disk; (after.DiskBytes > 0) != onDisk || (after.MemoryBytes > 0) == onDisk {
		t.Errorf("%d bytes from memory, %d from disk", after.MemoryBytes, after.DiskBytes)
	}
	if !s.experts && tier == devicemap.CPU {
		passes := after.Runs[0] - before.Runs[0]
		table := int64(s.vocab * s.hidden * 4)
		if got, most := (after.MemoryBytes-before.MemoryBytes)/passes, total+table; got <= total/2 || got > most {
			t.Errorf("a pass has used %d bytes of %d", got, total)
		}
	}
}
