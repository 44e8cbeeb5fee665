package model_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestActivityCountsBlocks: the blocks' sizes sum up to the tiers, every pass counts each block once, and
// reads from disk count for the block whose weights they bring.
func TestActivityCountsBlocks(t *testing.T) {
	for name, s := range map[string]dispatchtest.Shape{
		"dense":   {Hidden: 320, Inner: 352, Heads: 4, KV: 2, Dim: 32, Vocab: 515, Layers: 2, DType: meta.Float32, Shift: 3},
		"experts": {Hidden: 96, Inner: 96, Heads: 4, KV: 2, Dim: 24, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 5, Experts: true, Choose: 2},
	} {
		for _, tier := range []devicemap.Device{devicemap.CPU, devicemap.Disk} {
			t.Run(name+" on "+string(tier), func(t *testing.T) { checkActivity(t, s, tier) })
		}
	}
}

func checkActivity(t *testing.T, s dispatchtest.Shape, tier devicemap.Device) {
	dir := s.Folder(t, rand.New(rand.NewPCG(9, 9)))
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 2, Context: 128, MaxSequences: 8, MaxBatchTokens: 32, KVTokens: 8 * 128}
	bind := dispatch.CPUOffload
	if tier == devicemap.Disk {
		bind = dispatch.DiskOffload
	}
	m, err := bind(skeleton, checkpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	total := int64(0)
	for _, b := range m.Blocks() {
		total += b.Bytes[tier]
	}
	if want := m.Status().TierBytes[tier]; total != want || want == 0 {
		t.Errorf("blocks have %d bytes, the tier has %d", total, want)
	}
	before := m.Activity()
	dispatchtest.RunRandomTokens(t, m, 3)
	after, status := settledActivity(m)
	read := int64(0)
	for i, b := range m.Blocks() {
		if runs := after.Runs[i] - before.Runs[i]; runs != after.Runs[0]-before.Runs[0] || runs < 3 {
			t.Errorf("%s has run %d times", b.Path, runs)
		}
		read += after.Read[i]
	}
	if read != after.DiskBytes || after.DiskBytes != status {
		t.Errorf("blocks have read %d bytes, the model %d, status says %d", read, after.DiskBytes, status)
	}
	if onDisk := tier == devicemap.Disk; (after.DiskBytes > 0) != onDisk || (after.MemoryBytes > 0) == onDisk {
		t.Errorf("%d bytes from memory, %d from disk", after.MemoryBytes, after.DiskBytes)
	}
	if !s.Experts && tier == devicemap.CPU {
		passes := after.Runs[0] - before.Runs[0]
		table := int64(s.Vocab * s.Hidden * 4)
		if got, most := (after.MemoryBytes-before.MemoryBytes)/passes, total+table; got <= total/2 || got > most {
			t.Errorf("a pass has used %d bytes of %d", got, total)
		}
	}
}

// settledActivity returns the activity and the bytes that status says were read, once the reads for the
// next pass, which no pass waits for, have ended. It returns its last reading if they never agree.
func settledActivity(m *dispatch.Model) (after dispatch.Activity, status int64) {
	for range 5000 {
		before := m.Status().TierReadBytes
		after, status = m.Activity(), m.Status().TierReadBytes
		read := int64(0)
		for _, n := range after.Read {
			read += n
		}
		if read == status && status == before {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return after, status
}
