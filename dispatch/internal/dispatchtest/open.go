package dispatchtest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
)

// OpenModel opens a model and closes it when the test ends.
func OpenModel(t *testing.T, dir string, o dispatch.Options) *dispatch.Model {
	t.Helper()
	m, err := dispatch.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// AwaitConversion waits until weights are converted in the background.
func AwaitConversion(t *testing.T, m *dispatch.Model) {
	t.Helper()
	for {
		st := m.Status()
		if err := errors.Join(st.Loading.Err, st.PromoteErr); err != nil {
			t.Fatal(err)
		}
		if st.Loading.Filled && st.Promoted {
			if l := st.Loading; l.BytesDone != l.BytesTotal {
				t.Errorf("%d of %d bytes are loaded at the end", l.BytesDone, l.BytesTotal)
			}
			return
		}
	}
}

// OpenCheckpoint opens a checkpoint and closes it when the test ends.
func OpenCheckpoint(t testing.TB, dir string) (*meta.Model, *loader.Checkpoint) {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	return skeleton, checkpoint
}

// FiveMaps returns device maps by name: two with all weights on one tier, two mixed by block, one
// that splits blocks, and two under further names that tests treat differently.
func FiveMaps(skeleton *meta.Model) map[string]devicemap.Map {
	out := map[string]devicemap.Map{
		"cpu":  devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
		"disk": devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk}),
	}
	byBlock := func(first devicemap.Device, others ...devicemap.Device) devicemap.Map {
		m := devicemap.NewMap(devicemap.Entry{Device: first})
		spec := skeleton.Root.Spec.(*meta.CausalLMSpec)
		for _, list := range spec.Lists() {
			for i, layer := range skeleton.Root.Find(list).Children {
				m.Set(list+"."+layer.Name, others[i%len(others)])
			}
		}
		return m
	}
	out["alternating"] = byBlock(devicemap.CPU, devicemap.CPU, devicemap.Disk)
	out["head on disk"] = byBlock(devicemap.Disk, devicemap.Disk, devicemap.CPU)
	hand := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
	odd := false
	for path := range skeleton.Root.AllParams() {
		if odd = !odd; odd {
			hand.Set(path, devicemap.Disk)
		}
	}
	out["by hand"] = hand
	out["promoted"] = out["alternating"]
	out["in bands"] = out["disk"]
	return out
}

// Promote waits until the weights of the cpu tier are copied.
func Promote(t *testing.T, m *dispatch.Model) {
	t.Helper()
	m.Promote(context.Background())
	for !m.Status().Promoted {
		if err := m.Status().PromoteErr; err != nil {
			t.Fatal(err)
		}
	}
	if held := m.Status().Held["weights"]; held == 0 {
		t.Error("nothing was promoted")
	}
}

// OnDisk opens a model whose weights all stream, in the minimum of memory or with staging for
// more.
func OnDisk(t *testing.T, dir string, o dispatch.Options) *dispatch.Model {
	t.Helper()
	o.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})}
	return OpenModel(t, dir, o)
}

// SmallBand is the size of the bands in which the small matrices of these tests stream, in bytes.
const SmallBand = 4 << 10

// DemoFolder writes the demo model to a folder and returns it.
func DemoFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.Files()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Generate returns the tokens that a model generates.
func Generate(t *testing.T, m *dispatch.Model, prompt []int32, o dispatch.GenerateOptions) []int32 {
	t.Helper()
	var ids []int32
	for id, err := range m.Generate(context.Background(), prompt, o) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// ModTime returns the modification time of a file.
func ModTime(t *testing.T, name string) time.Time {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// Overwrite writes into the same inode, which is mapped, and sets its modification time.
func Overwrite(name string, b []byte, written time.Time) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close(), os.Chtimes(name, written, written))
}

// AddHook adds a hook to m and fails the test if m rejects it.
func AddHook(t testing.TB, m *dispatch.Model, h dispatch.Hook) *dispatch.HookHandle {
	t.Helper()
	handle, err := m.AddHook(h)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// Scattered returns n token ids that are spread over a vocabulary of 226.
func Scattered(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i*37%223 + 3)
	}
	return ids
}

// Allocations returns the number of allocations for one token of each of the given number of
// sequences.
func Allocations(t *testing.T, m *dispatch.Model, batch int) float64 {
	b := &dispatch.Batch{}
	for range batch {
		s := m.NewSequence()
		defer s.Free()
		b.Rows = append(b.Rows, dispatch.BatchRow{Sequence: s, Tokens: []int32{1}, PromptLen: 1, Logits: dispatch.LogitsLast})
	}
	step := func() {
		if _, err := m.Forward(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		step()
	}
	return testing.AllocsPerRun(40, step)
}
