package loader

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// headerCase is a case of infer/safetensors_bad.
type headerCase struct {
	File      string
	What      string
	Accept    bool
	Reference map[string]struct {
		Accept   bool
		Tensors  map[string]json.RawMessage
		Metadata map[string]string
	}
}

func TestGoldenSafetensorsBad(t *testing.T) {
	cases := 0
	defer func() { golden.Count(t, "infer/safetensors_bad", cases) }()
	for _, manifest := range golden.Glob(t, "infer/safetensors_bad/expected*.json") {
		var m struct{ Cases []headerCase }
		golden.JSON(t, manifest, &m)
		for _, c := range m.Cases {
			cases++
			t.Run(c.File, func(t *testing.T) { checkHeaderCase(t, filepath.Join(filepath.Dir(manifest), c.File), c) })
		}
	}
}

func checkHeaderCase(t *testing.T, path string, c headerCase) {
	data, err := golden.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	stored := path
	if _, err := os.Stat(path); err != nil {
		stored = filepath.Join(t.TempDir(), c.File)
		if err := os.WriteFile(stored, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fromDisk, diskErr := Open(stored)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20+200*uint64(len(data)) {
		t.Errorf("opening %d bytes allocated %d", len(data), took)
	}
	inMemory, memErr := OpenBytes("memory", map[string][]byte{c.File: data})
	for _, err := range []error{diskErr, memErr} {
		if (err == nil) != c.Accept {
			t.Fatalf("%s: accepted is %t, want %t: %v", c.What, err == nil, c.Accept, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.File == "" || e.Reason == "" || !strings.HasPrefix(err.Error(), "loader:")) {
			t.Errorf("error %q (%T) has no place", err, err)
		}
	}
	if !c.Accept {
		t.Log(diskErr)
		return
	}
	for _, ck := range []*Checkpoint{fromDisk, inMemory} {
		for api, r := range c.Reference {
			compareTensors(t, ck, r.Tensors)
			if api == "safe_open" && r.Metadata != nil && !mapsEqual(ck.Metadata(), r.Metadata) {
				t.Errorf("metadata %v, want %v", ck.Metadata(), r.Metadata)
			}
		}
		if err := ck.Close(); err != nil {
			t.Error(err)
		}
	}
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// compareTensors compares with {name: [dtype, shape]} or {"count": n}.
func compareTensors(t *testing.T, ck *Checkpoint, want map[string]json.RawMessage) {
	t.Helper()
	if n := want["count"]; len(want) == 1 && n != nil && n[0] != '[' {
		var count int
		if err := json.Unmarshal(n, &count); err != nil || ck.Len() != count {
			t.Errorf("%d tensors, want %s", ck.Len(), n)
		}
		return
	}
	if ck.Len() != len(want) {
		t.Errorf("tensors %q, want %d", slices.Collect(ck.Names()), len(want))
	}
	for name, raw := range want {
		var dtype string
		var dims []uint64 // an empty tensor may have a dimension beyond an int
		if err := json.Unmarshal(raw, &[]any{&dtype, &dims}); err != nil {
			t.Fatal(err)
		}
		shape := make([]int, len(dims))
		for i, d := range dims {
			shape[i] = int(min(d, math.MaxInt))
		}
		got, gotDType, ok := ck.Tensor(name)
		if !ok || gotDType.Safetensors() != dtype || !slices.Equal(got, shape) {
			t.Errorf("tensor %q: %v %v (%t), want %s %v", name, gotDType, short(got), ok, dtype, short(shape))
			continue
		}
		h, _ := ck.Lookup(name)
		if b, err := h.Bytes(); err != nil || int64(len(b)) != gotDType.Bytes(meta.Elements(shape)) {
			t.Errorf("tensor %q: %d bytes, %v", name, len(b), err)
		}
	}
}

func TestGoldenIndexBad(t *testing.T) {
	cases := 0
	defer func() { golden.Count(t, "infer/index_bad", cases) }()
	for _, manifest := range golden.Glob(t, "infer/index_bad/expected*.json") {
		var m struct {
			Cases []struct{ Folder, What, Must string }
		}
		golden.JSON(t, manifest, &m)
		var values map[string][2]json.RawMessage
		golden.JSON(t, filepath.Join(filepath.Dir(manifest), "values.json"), &values)
		for _, c := range m.Cases {
			cases++
			t.Run(c.Folder, func(t *testing.T) {
				ck, err := loadAll(filepath.Join(filepath.Dir(manifest), c.Folder), values)
				t.Logf("%s: %v", c.What, err)
				if err == nil {
					defer ck.Close()
				}
				switch c.Must {
				case "accept":
					if err != nil {
						t.Errorf("refused: %v", err)
					}
				case "reject":
					if err == nil {
						t.Error("accepted")
					}
				}
				if err == nil {
					compareValues(t, ck, values)
				}
			})
		}
	}
}

// loadAll opens a folder and binds a model whose parameters are the names of values.
func loadAll(dir string, values map[string][2]json.RawMessage) (*Checkpoint, error) {
	ck, err := Open(dir)
	if err != nil {
		return nil, err
	}
	root := &meta.Module{}
	for name, v := range values {
		var shape []int
		if err := json.Unmarshal(v[0], &shape); err != nil {
			return nil, err
		}
		root.Params = append(root.Params, &meta.Param{Name: name, Shape: shape, DType: meta.Float32})
	}
	if _, err := Bind(ck, &meta.Model{Root: root}); err != nil {
		ck.Close()
		return nil, err
	}
	return ck, nil
}

func compareValues(t *testing.T, ck *Checkpoint, values map[string][2]json.RawMessage) {
	t.Helper()
	for name, v := range values {
		var want []float64
		if err := json.Unmarshal(v[1], &want); err != nil {
			t.Fatal(err)
		}
		h, _ := ck.Lookup(name)
		b, err := h.Bytes()
		if err != nil || len(b) != 4*len(want) {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		for i, w := range want {
			got := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
			if !(math.Abs(float64(got)-w) <= 1e-6*math.Abs(w)) {
				t.Fatalf("%s[%d] = %g, want %g", name, i, got, w)
			}
		}
	}
}

// TestGoldenModelsOpen opens every model folder, whatever its architecture or format:
// quantised ones must open too.
func TestGoldenModelsOpen(t *testing.T) {
	for _, config := range golden.Glob(t, "infer/models/*/config.json") {
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			dir := golden.Unpacked(t, dir)
			ck, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			for h := range ck.Tensors() {
				b, err := h.Bytes()
				if err != nil || int64(len(b)) != h.Size || h.DType.Bytes(meta.Elements(h.Shape)) != h.Size {
					t.Errorf("%s: %d bytes of %d, %v", h.Name, len(b), h.Size, err)
				}
			}
			if ck.Len() == 0 || ck.Verify() != nil || ck.Dir() != dir {
				t.Errorf("%d tensors, %v, folder %s", ck.Len(), ck.Verify(), ck.Dir())
			}
		})
	}
}

func bindFolder(t *testing.T, dir string) (*Checkpoint, *meta.Model, *Binding) {
	t.Helper()
	ck, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	text, err := golden.Read(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := meta.ReadConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	model, err := meta.New(config, ck)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Bind(ck, model)
	if err != nil {
		t.Fatal(err)
	}
	return ck, model, b
}

// TestGoldenModelsBind binds every model: nothing may be missing, and
// nothing left over.
func TestGoldenModelsBind(t *testing.T) {
	cases := 0
	defer func() { golden.Count(t, "infer/models", cases) }()
	for _, config := range golden.Glob(t, "infer/models/*/config.json") {
		cases++
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			_, model, b := bindFolder(t, golden.Unpacked(t, dir))
			if extra := b.Unexpected(); len(extra) != 0 {
				t.Errorf("unexpected tensors: %q", extra)
			}
			for path, p := range model.Root.AllParams() {
				var filled int64
				for _, part := range b.Tensors(p) {
					_, size := part.Span()
					filled += size
					for _, beside := range []*Tensor{part.Scales, part.Zeros, part.Index, part.Global} {
						if beside != nil {
							filled += beside.Size
						}
					}
				}
				if filled != p.Bytes() {
					t.Errorf("%s of shape %v is filled with %d bytes of %d", path, p.Shape, filled, p.Bytes())
				}
			}
		})
	}
}
