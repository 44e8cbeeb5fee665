package files_test

import (
	"context"
	"errors"
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
)

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
