package dispatch_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoadCheckpointAndDispatchGenerates(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	var want []int32
	for _, text := range []string{"cpu", "disk", "auto", "model.layers.1=disk,lm_head=cpu"} {
		policy, err := devicemap.ParsePolicy(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := dispatchtest.Generate(t, m, []int32{1, 2, 3}, dispatch.GenerateOptions{MaxTokens: 12})
		m.Close()
		if want == nil {
			want = got
		}
		if len(got) != 12 || !slices.Equal(got, want) {
			t.Errorf("%s: generated %v, want %v", text, got, want)
		}
	}
}

func TestGenerateHonoursStopSeedAndContext(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	all := dispatchtest.Generate(t, m, []int32{1, 2, 3}, dispatch.GenerateOptions{})
	if len(all) != 13 {
		t.Errorf("%d tokens after a prompt of 3 in a context of 16", len(all))
	}
	if got := dispatchtest.Generate(t, m, []int32{1, 2, 3}, dispatch.GenerateOptions{Stop: []int32{all[4]}}); !slices.Equal(got, all[:slices.Index(all, all[4])+1]) {
		t.Errorf("with stop %d: %v", all[4], got)
	}
	sampled := dispatch.GenerateOptions{Temperature: 1, Seed: 5}
	if a, b := dispatchtest.Generate(t, m, []int32{7}, sampled), dispatchtest.Generate(t, m, []int32{7}, sampled); !slices.Equal(a, b) {
		t.Errorf("the same seed gave %v and %v", a, b)
	}
	for id, err := range m.Generate(context.Background(), []int32{5000}, dispatch.GenerateOptions{}) {
		if err == nil || !strings.Contains(err.Error(), "outside the vocabulary") {
			t.Errorf("prompt id 5000: token %d, error %v", id, err)
		}
	}
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d pages are still used after all sequences ended", used)
	}
}

func TestHooksSeeEveryUnit(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var seen []string
	dispatchtest.AddHook(t, m, dispatch.Hook{
		Pre:  func(p *dispatch.ModuleCall) error { seen = append(seen, "pre "+p.Path); return nil },
		Post: func(p *dispatch.ModuleCall) error { seen = append(seen, "post "+p.Path); return nil },
	})
	dispatchtest.Generate(t, m, []int32{1}, dispatch.GenerateOptions{MaxTokens: 1})
	want := []string{"pre model.embed_tokens", "post model.embed_tokens"}
	for _, layer := range m.Skeleton().Root.Find("model.layers").Children {
		want = append(want, "pre model.layers."+layer.Name, "post model.layers."+layer.Name)
	}
	want = append(want, "pre model.norm", "post model.norm")
	if !slices.Equal(seen, want) {
		t.Errorf("hooks saw %v, want %v", seen, want)
	}
}

func TestHookMayChangeHiddenStates(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before := dispatchtest.Generate(t, m, []int32{9, 8}, dispatch.GenerateOptions{MaxTokens: 4})
	dispatchtest.AddHook(t, m, dispatch.Hook{Paths: []string{"model.layers.2"}, Post: func(p *dispatch.ModuleCall) error {
		for i := range p.Hidden {
			p.Hidden[i] *= -1
		}
		return nil
	}})
	width := m.Skeleton().Root.Find("model.norm").Param("weight").Shape[0]
	dispatchtest.AddHook(t, m, dispatch.Hook{Pre: func(p *dispatch.ModuleCall) error {
		if p.Path != "model.embed_tokens" && p.Width != width {
			t.Errorf("%s: hidden states of width %d", p.Path, p.Width)
		}
		return nil
	}})
	if after := dispatchtest.Generate(t, m, []int32{4, 8}, dispatch.GenerateOptions{MaxTokens: 4}); slices.Equal(before, after) {
		t.Errorf("hidden states were negated and nothing changed: %v", after)
	}
}

// TestTruncatedShardFailsTheRequestOnly cuts the file under a running model: the pass fails
// with the file's name, and works again when the file is whole again.
func TestTruncatedShardFailsTheRequestOnly(t *testing.T) {
	for _, text := range []string{"cpu", "disk"} {
		dir := dispatchtest.DemoFolder(t)
		policy, _ := devicemap.ParsePolicy(text)
		m, err := dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		if err != nil {
			t.Fatal(err)
		}
		want := dispatchtest.Generate(t, m, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3})
		shard := filepath.Join(dir, "model.safetensors")
		whole, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		written := dispatchtest.ModTime(t, shard)
		if err := os.Truncate(shard, 65536); err != nil {
			t.Fatal(err)
		}
		var failure error
		for _, err := range m.Generate(context.Background(), []int32{3, 4}, dispatch.GenerateOptions{MaxTokens: 3}) {
			failure = err
		}
		var weight *dispatch.WeightError
		if !errors.As(failure, &weight) || !strings.Contains(weight.File, "model.safetensors") {
			t.Errorf("%s: a truncated shard gave %v", text, failure)
		}
		if m.KV().Used != 0 {
			t.Errorf("%s: %d pages are held after the failure", text, m.KV().Used)
		}
		if err := dispatchtest.Overwrite(shard, whole, written); err != nil {
			t.Fatal(err)
		}
		if got := dispatchtest.Generate(t, m, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3}); !slices.Equal(got, want) {
			t.Errorf("%s: after the file was mended: %v, want %v", text, got, want)
		}
		m.Close()
	}
}

// TestATouchedShardDoesNotEndService: a backup tool changed the date of a shard, and every request
// got a 503 until the server was restarted. Equal contents are served on, under every placement and
// from converted weights; one byte of difference is noticed as before.
func TestATouchedShardDoesNotEndService(t *testing.T) {
	for _, c := range []struct {
		policy string
		o      dispatch.Options
	}{{"cpu", dispatch.Options{}}, {"disk", dispatch.Options{}}, {"cpu", dispatch.Options{Quantize: meta.QuantQ8}}} {
		dir := dispatchtest.DemoFolder(t)
		shard := filepath.Join(dir, "model.safetensors")
		whole, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		written := dispatchtest.ModTime(t, shard)
		skeleton, checkpoint, err := loader.OpenModel(dir)
		if err != nil {
			t.Fatal(err)
		}
		c.o.DeviceMap, _ = devicemap.ParsePolicy(c.policy)
		plan, o, err := dispatch.Plan(skeleton, c.o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkpoint.HashFiles(context.Background(), false, nil); err != nil { // as Warm does
			t.Fatal(err)
		}
		speak := func() ([]int32, error) {
			var out []int32
			for id, err := range m.Generate(context.Background(), []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 4}) {
				if err != nil {
					return out, err
				}
				out = append(out, id)
			}
			return out, nil
		}
		want, err := speak()
		if err != nil {
			t.Fatal(err)
		}
		other := slices.Clone(whole)
		other[len(other)/2] ^= 1
		for i, step := range []struct {
			bytes []byte
			fails bool
		}{{whole, false}, {other, true}, {whole, false}} {
			if err := dispatchtest.Overwrite(shard, step.bytes, written.Add(time.Duration(i+1)*time.Second)); err != nil {
				t.Fatal(err)
			}
			got, err := speak()
			if step.fails != errors.Is(err, dispatch.ErrChanged) || !step.fails && !slices.Equal(got, want) {
				t.Errorf("%s, %v, step %d: %v, %v; want %v", c.policy, c.o.Quantize, i, got, err, want)
			}
		}
		m.Close()
		_ = checkpoint.Close()
	}
}

// TestAnOverwrittenShardIsNoticed: a file of the same size was written over one in use, and
// answers were made of both.
func TestAnOverwrittenShardIsNoticed(t *testing.T) {
	for _, text := range []string{"cpu", "disk"} {
		dir := dispatchtest.DemoFolder(t)
		shard := filepath.Join(dir, "model.safetensors")
		policy, _ := devicemap.ParsePolicy(text)
		whole, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		written := dispatchtest.ModTime(t, shard)
		m, err := dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		if err != nil {
			t.Fatal(err)
		}
		want := dispatchtest.Generate(t, m, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3})
		other := slices.Clone(whole)
		clear(other[len(other)/2:])
		if err := dispatchtest.Overwrite(shard, other, written.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		var failure error
		for _, err := range m.Generate(context.Background(), []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3}) {
			failure = err
		}
		var weight *dispatch.WeightError
		if !errors.As(failure, &weight) || !errors.Is(failure, dispatch.ErrChanged) || !strings.Contains(failure.Error(), shard) {
			t.Errorf("%s: an overwritten shard gave %v", text, failure)
		}
		if err := m.Status().Loading.Err; !errors.Is(err, dispatch.ErrChanged) {
			t.Errorf("%s: the status says %v", text, err)
		}
		if err := dispatchtest.Overwrite(shard, whole, written); err != nil {
			t.Fatal(err)
		}
		if got := dispatchtest.Generate(t, m, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3}); !slices.Equal(got, want) || m.Status().Loading.Err != nil {
			t.Errorf("%s: the file is what it was: %v, want %v; the status says %v", text, got, want, m.Status().Loading.Err)
		}
		m.Close()
	}
}

// TestAReplacedShardIsNotMixedIn: a file that takes a shard's place by its name leaves the one
// in use as it is.
func TestAReplacedShardIsNotMixedIn(t *testing.T) {
	for _, text := range []string{"cpu", "disk"} {
		dir := dispatchtest.DemoFolder(t)
		shard := filepath.Join(dir, "model.safetensors")
		policy, _ := devicemap.ParsePolicy(text)
		m, err := dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		if err != nil {
			t.Fatal(err)
		}
		want := dispatchtest.Generate(t, m, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3})
		takeName(t, shard, make([]byte, 1<<20))
		if got := dispatchtest.Generate(t, m, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3}); !slices.Equal(got, want) {
			t.Errorf("%s: after another file took the name: %v, want %v", text, got, want)
		}
		m.Close()
	}
}

func TestForwardUndoesAFailedBatch(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{Context: 32, KVTokens: 48})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a, b := m.NewSequence(), m.NewSequence()
	defer a.Free()
	defer b.Free()
	ids := make([]int32, 32)
	_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: a, Tokens: ids}, {Sequence: b, Tokens: ids}}})
	if !errors.Is(err, dispatch.ErrKVFull) {
		t.Fatalf("64 tokens in 48: %v", err)
	}
	if a.Len() != 0 || b.Len() != 0 {
		t.Errorf("the sequences hold %d and %d tokens after the failure", a.Len(), b.Len())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Forward(ctx, &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: a, Tokens: ids[:4]}}}); !errors.Is(err, context.Canceled) || a.Len() != 0 {
		t.Errorf("a cancelled pass: %v, %d tokens held", err, a.Len())
	}
}

// TestUserTree runs a tree that no architecture made: y = relu(x·Wᵀ + b).
func TestUserTree(t *testing.T) {
	root := &meta.Module{Class: "Net", Kind: meta.KindSequential, Children: []*meta.Module{
		{Name: "fc", Class: "Linear", Kind: meta.KindLinear, Spec: &meta.LinearSpec{In: 2, Out: 3}, Params: []*meta.Param{
			{Name: "weight", Shape: []int{3, 2}, DType: meta.Float32}, {Name: "bias", Shape: []int{3}, DType: meta.Float32}}},
		{Name: "act", Class: "ReLU", Kind: meta.KindActivation, Spec: &meta.ActivationSpec{Act: meta.ActReLU}},
	}}
	floats := func(v ...float32) func() ([]byte, error) {
		return func() ([]byte, error) {
			var b []byte
			for _, x := range v {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			return b, nil
		}
	}
	dir := t.TempDir()
	tensors := []loader.NamedTensor{
		{Name: "fc.weight", DType: meta.Float32, Shape: []int{3, 2}, Bytes: floats(1, 2, 3, 4, -5, -6)},
		{Name: "fc.bias", DType: meta.Float32, Shape: []int{3}, Bytes: floats(0.5, -20, 1)},
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	for name, offload := range map[string]func(*meta.Model, *loader.Checkpoint, dispatch.Options) (*dispatch.Model, error){
		"cpu": dispatch.CPUOffload, "disk": dispatch.DiskOffload,
	} {
		m, err := offload(&meta.Model{Root: root}, checkpoint, dispatch.Options{Threads: 1})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		y, err := m.Apply(context.Background(), []float32{1, 2, 3, 4}, 2)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := []float32{5.5, 0, 0, 11.5, 5, 0}; !slices.Equal(y, want) {
			t.Errorf("%s: %v, want %v", name, y, want)
		}
		m.Close()
	}
}

func TestPlacementErrorsNameThePlace(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	for text, want := range map[string]string{
		"model.layer.1=disk": "model.layers",
		"0":                  "device 0",
		`{"model": "cpu", "model.layers.0": 1, "lm_head": "cpu"}`: "device 1",
	} {
		policy, err := devicemap.ParsePolicy(text)
		if err == nil {
			_, err = dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", text, err, want)
		}
	}
}

func TestStrictMemoryRefuses(t *testing.T) {
	limits, err := devicemap.ParseMaxMemory("cpu=100KB")
	if err != nil {
		t.Fatal(err)
	}
	dir := dispatchtest.DemoFolder(t)
	if _, err := dispatch.Open(dir, dispatch.Options{MaxMemory: limits, StrictMemory: true}); err == nil {
		t.Error("100 KB was enough with --strict-memory")
	}
	m, err := dispatch.Open(dir, dispatch.Options{MaxMemory: limits})
	if err != nil {
		t.Fatal(err)
	}
	dispatchtest.Generate(t, m, []int32{1}, dispatch.GenerateOptions{MaxTokens: 2})
	if m.Status().TierReadBytes == 0 {
		t.Error("nothing was streamed under a limit of 100 KB")
	}
	m.Close()
}

func TestWarmReadsTheCPUTier(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Warm(context.Background())
	for !m.Status().Loading.Done {
		if err := m.Status().Loading.Err; err != nil {
			t.Fatal(err)
		}
	}
	if l := m.Status().Loading; l.BytesDone != l.BytesTotal || l.BlocksDone != l.BlocksTotal || l.BytesTotal == 0 {
		t.Errorf("warmed: %+v", l)
	}
}
