package limit_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestThePlanShowsWhatHoldsNow: after weights had lost their memory to a lower limit, the plan of a running server was
// still that of the start. Its limit, shares, map and bytes from the disk are those of now.
func TestThePlanShowsWhatHoldsNow(t *testing.T) {
	s := dispatchtest.LargeShape
	s.DType, s.Layers = meta.BFloat16, 4
	dir := s.Folder(t, rand.New(rand.NewPCG(8, 8)))
	ids, prompt := dispatchtest.LawIDs()
	for _, o := range []dispatch.Options{{}, {Quantize: meta.QuantQ8, CacheDir: t.TempDir()}} {
		o.Threads, o.MaxSequences = 2, 4
		m := dispatchtest.OpenModel(t, dir, o)
		dispatchtest.LoadAll(t, m)
		dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
		if _, differs := m.PlanNow(); differs {
			t.Errorf("%v: the plan differs before anything has", o.Quantize)
		}
		planned, all := m.Plan(), dispatchtest.UsedBytes(m)
		least := m.SetMemoryLimit(0)
		for _, limit := range []int64{least, (least + all) / 2} {
			m.SetMemoryLimit(limit)
			dispatchtest.ForcedLogits(t, m, ids, prompt, 7) // the first passes write converted weights
			reads := readsOfPasses(t, m, ids)
			plan, differs := m.PlanNow()
			host, disk := plan.Device(devicemap.CPU), plan.Device(devicemap.Disk)
			if !differs || host.LimitBytes != limit || host.Used() > limit {
				t.Errorf("%v: under a limit of %d the plan is %+v, differs %v", o.Quantize, limit, host, differs)
			}
			if got, want := host.WeightsBytes+disk.WeightsBytes, planned.Device(devicemap.CPU).WeightsBytes; got != want {
				t.Errorf("%v: %d bytes of weights, want %d", o.Quantize, got, want)
			}
			if got := bytesOnDisk(m.Skeleton(), plan.Map); o.Quantize == meta.QuantNone && got != plan.DiskBytesPerToken {
				t.Errorf("a limit of %d: the map %s has %d bytes on the disk, want the %d that stream", limit, plan.Map, got, plan.DiskBytesPerToken)
			} else if got == 0 {
				t.Errorf("%v: a limit of %d: the map %s has nothing on the disk", o.Quantize, limit, plan.Map)
			}
			// Weights that are still in the window are not read again.
			if got := plan.DiskBytesPerToken; got == 0 || reads < got-got/8 || reads > got+got/8 {
				t.Errorf("%v: a limit of %d: a pass reads %d bytes, the plan says %d", o.Quantize, limit, reads, got)
			}
		}
		if before := planned.Devices; !slices.Equal(before, m.Plan().Devices) {
			t.Errorf("the plan of the start has changed from %v to %v", before, m.Plan().Devices)
		}
		m.SetMemoryLimit(all)
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			plan, _ := m.PlanNow()
			if plan.DiskBytesPerToken == 0 && plan.Device(devicemap.CPU).Used() == all {
				if got, want := plan.Map.String(), planned.Map.String(); got != want {
					t.Errorf("%v: the map is %s, want that of the start again, %s", o.Quantize, got, want)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%v: the plan is %+v, want all in memory again", o.Quantize, plan.Devices)
			}
		}
		m.Close()
	}
}

// bytesOnDisk returns the stored bytes of the parameters that a map has on the disk.
func bytesOnDisk(skeleton *meta.Model, m devicemap.Map) (n int64) {
	for path, p := range skeleton.Root.AllParams() {
		if device, _ := m.Device(path); device == devicemap.Disk {
			n += p.Bytes()
		}
	}
	return n
}

// readsOfPasses returns the bytes that a pass of one token reads from the disk, as the mean of several.
func readsOfPasses(t *testing.T, m *dispatch.Model, ids []int32) int64 {
	t.Helper()
	const passes = 8
	q := m.NewSequence()
	defer q.Free()
	var before int64
	for i := range passes + 2 {
		if i == 2 {
			before = m.Status().TierReadBytes
		}
		if _, err := m.Forward(t.Context(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: q, Tokens: ids[i : i+1]}}}); err != nil {
			t.Fatal(err)
		}
	}
	return (m.Status().TierReadBytes - before) / passes
}
