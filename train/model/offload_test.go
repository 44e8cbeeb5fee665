package model

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/train/tensor"
)

// TestAFullFineTuneWithinAThirdOfItsWeights trains all weights of models through an Accelerator. Their values
// leave memory between uses, and end as those that stay.
func TestAFullFineTuneWithinAThirdOfItsWeights(t *testing.T) {
	for _, name := range []string{"deepseek-v3", "gpt-oss", "gemma2", "qwen3-moe", "gpt-neox", "olmo2", "lfm2-moe", "qwen3-next", "nemotron-h", "mistral-large4", "deepseek-v4"} {
		t.Run(name, func(t *testing.T) {
			dir := ownModel(t, name)
			train := func(options ...Option) (*Model, []byte) {
				m, err := openFile(t, dir, dir, options...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				return m, learned(t, m, asIs)
			}
			whole, want := train()
			var size, largest int64
			for _, p := range whole.Parameters() {
				size += 4 * int64(p.Len())
			}
			for _, u := range whole.units {
				var n int64
				for _, p := range u.trained {
					n += (4*int64(p.Len()) + pageBytes - 1) &^ (pageBytes - 1)
				}
				largest = max(largest, n)
			}
			scratch := t.TempDir()
			m, got := train(OffloadParameters(size/3, scratch))
			if !bytes.Equal(got, want) {
				t.Error("the weights differ")
			}
			st := m.OffloadStats()
			if st.Size != size || st.Written == 0 || st.Read == 0 || st.Peak > max(size/3, largest+pageBytes) {
				t.Errorf("of %d bytes, the largest unit %d: %+v", size, largest, st)
			}
			for path, p := range m.Parameters() {
				if p.Data() != nil {
					t.Errorf("%s is still acquired", path)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if left, _ := filepath.Glob(filepath.Join(scratch, atomicfile.TempPrefix+"*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestOffloadedParametersNeedAFolder: a step that changes more than memory holds fails with the reason.
func TestOffloadedParametersNeedAFolder(t *testing.T) {
	dir := ownModel(t, "olmo2")
	m, err := openFile(t, dir, dir, OffloadParameters(1, filepath.Join(t.TempDir(), "none")))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := learn(t.Context(), nil, m, asIs); err == nil || !strings.Contains(err.Error(), "scratch file") {
		t.Errorf("got %v", err)
	}
	tp := tensor.NewTape(tensor.Options{Autocast: tensor.Float16})
	if _, err := m.Loss(tp, someBatch(1, 2, 3), Options{}); err == nil || !strings.Contains(err.Error(), "float16") {
		t.Errorf("autocast to float16: %v", err)
	}
}

// TestOffloadedAndFrozenParametersTogether trains some weights that leave memory beside frozen ones that
// stream.
func TestOffloadedAndFrozenParametersTogether(t *testing.T) {
	dir := ownModel(t, "qwen3-moe")
	frozen := Freeze(func(path string) bool { return strings.Contains(path, "layers.0") })
	train := func(options ...Option) []byte {
		m, err := openFile(t, dir, dir, append(options, frozen)...)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return learned(t, m, asIs)
	}
	want := train()
	if !bytes.Equal(train(OffloadParameters(1, t.TempDir()), MaxMemory(1)), want) {
		t.Error("the weights differ")
	}
}
