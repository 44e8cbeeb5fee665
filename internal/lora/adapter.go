package lora

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// The files of an adapter's folder.
const (
	ConfigFile  = "adapter_config.json"
	stem        = "adapter_model"
	weightsFile = stem + ".safetensors"
)

// An Adapter is the matrices of all targets of a config, in the order of the tree.
type Adapter struct {
	Config *Config
	Pairs  []Pair

	file *loader.Checkpoint // that Pairs lie in; nil: memory of their own
}

// A Pair is what an adapter adds to one linear map, or to each map of a stack of experts. A
// is [Rank, In] and B is [Out, Rank], of float32, bfloat16 or float16, in host memory; of a
// stack, those of all experts one below the other.
type Pair struct {
	Target
	A, B tensor.Tensor
}

// Open reads the folder of an adapter for the model whose tree root is. The matrices are the
// mapped file's until [Adapter.Close]. Errors name the file and the field or tensor.
func Open(dir string, root *meta.Module) (*Adapter, error) {
	config, err := readConfigFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		return nil, err
	}
	targets, err := config.Match(root)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	path := filepath.Join(dir, weightsFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, stem+".bin")); err == nil {
			return nil, fmt.Errorf("lora: %s: %s.bin is a pickle, which is not read; save the adapter as safetensors", dir, stem)
		}
	}
	file, err := loader.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	a := &Adapter{Config: config, file: file}
	if a.Pairs, err = pairs(file, root, targets); err != nil {
		_ = file.Close() // the error tells more
		return nil, fmt.Errorf("lora: %s: %w", path, err)
	}
	return a, nil
}

func readConfigFile(path string) (*Config, error) {
	data, err := smallfile.Read(path, smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	c, err := ReadConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, filepath.Dir(path))
	}
	return c, nil
}

// Close lets go of the file. Adapters that were not read from one need no Close.
func (a *Adapter) Close() error {
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file, a.Pairs = nil, nil
	return err
}

// Rank is the largest rank of the pairs.
func (a *Adapter) Rank() int {
	most := 0
	for i := range a.Pairs {
		most = max(most, a.Pairs[i].Rank)
	}
	return most
}

// NumParameters is the number of elements of all matrices.
func (a *Adapter) NumParameters() int64 {
	var n int64
	for i := range a.Pairs {
		p := &a.Pairs[i]
		n += int64(p.maps()) * int64(p.Rank) * int64(p.In+p.Out)
	}
	return n
}

// Bytes is what all matrices take as they are stored.
func (a *Adapter) Bytes() int64 {
	var n int64
	for i := range a.Pairs {
		n += a.Pairs[i].A.Bytes() + a.Pairs[i].B.Bytes()
	}
	return n
}

// prefix stands before a module's path in the names of tensors.
const prefix = "base_model.model."

// Name is the tensor of matrix "A" or "B", as PEFT calls it. It wraps each parameter of a
// stack around the one before.
func (t *Target) Name(matrix string) string {
	return prefix + t.Path + strings.Repeat(".base_layer", t.depth) + ".lora_" + matrix + ".weight"
}

// maps is the number of linear maps that t stands for.
func (t *Target) maps() int { return max(t.Experts, 1) }

// pairs finds the two matrices of every target. What the file has beyond them is an error:
// to leave it out would be another adapter. Copies of the base's embeddings are none, which
// PEFT adds where the head is adapted.
func pairs(file *loader.Checkpoint, root *meta.Module, targets []Target) ([]Pair, error) {
	used := 0
	list := make([]Pair, len(targets))
	for i, t := range targets {
		list[i].Target = t
		var err error
		if list[i].A, err = matrix(file, t.Name("A"), t.maps()*t.Rank, t.In); err != nil {
			return nil, err
		}
		if list[i].B, err = matrix(file, t.Name("B"), t.Out, t.maps()*t.Rank); err != nil {
			return nil, err
		}
		if t.Experts > 0 {
			list[i].B = t.stack(list[i].B)
		}
		used += 2
	}
	if used == file.Len() {
		return list, nil
	}
	known := make(map[string]bool, used)
	for _, t := range targets {
		for _, m := range []string{"A", "B"} {
			known[t.Name(m)] = true
		}
	}
	for t := range file.Tensors() {
		if !known[t.Name] && !copied(t, root) {
			return nil, fmt.Errorf("tensor %.200q belongs to no module that target_modules names", t.Name)
		}
	}
	return list, nil
}

// copied reports whether a tensor is the embedding's or the head's own weight.
func copied(t *loader.Tensor, root *meta.Module) bool {
	s, ok := root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return false
	}
	name := strings.TrimPrefix(t.Name, prefix)
	for _, path := range []string{s.Embed, s.Head} {
		if name == path+".weight" || name == path+".base_layer.weight" {
			p := root.Find(path).Param("weight")
			return p != nil && slices.Equal(p.Shape, t.Shape)
		}
	}
	return false
}

func matrix(file *loader.Checkpoint, name string, rows, cols int) (tensor.Tensor, error) {
	t, ok := file.Lookup(name)
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("tensor %s is missing", name)
	}
	if len(t.Shape) != 2 || t.Shape[0] != rows || t.Shape[1] != cols {
		return tensor.Tensor{}, fmt.Errorf("tensor %s has shape %v, wanted [%d %d]", name, t.Shape, rows, cols)
	}
	switch t.DType {
	case meta.Float32, meta.BFloat16, meta.Float16:
	default:
		return tensor.Tensor{}, fmt.Errorf("tensor %s is %v; float32, bfloat16 and float16 are run", name, t.DType)
	}
	if err := finite(t); err != nil {
		return tensor.Tensor{}, err
	}
	data, err := t.Bytes()
	if err != nil {
		return tensor.Tensor{}, err
	}
	return tensor.Of(data, t.DType, rows, cols)
}

// finite fails where t has an infinity or a NaN: every answer of the adapter would be one. It
// reads the whole tensor, some kilobytes at a time.
func finite(t *loader.Tensor) error {
	const most = 1 << 14
	values, bytes := make([]float32, most), make([]byte, t.DType.Bytes(most))
	for at := int64(0); at < t.Elements(); at += most {
		n := min(t.Elements()-at, most)
		chunk := bytes[:t.DType.Bytes(n)]
		if _, err := t.ReadAt(chunk, t.DType.Bytes(at)); err != nil {
			return err
		}
		if err := tensor.Widen(values[:n], chunk, t.DType); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		for i, v := range values[:n] {
			if v-v != 0 { // an infinity or a NaN
				return fmt.Errorf("tensor %s: element %d is %v, want a finite number", t.Name, at+int64(i), v)
			}
		}
	}
	return nil
}

// New starts an adapter of float32 matrices in memory of its own: A uniform within ±1/√In as
// torch starts a linear map, B zero. uniform fills x with numbers from lo to hi; it is called
// as PEFT draws, so that torch's generator gives the same start.
func (c *Config) New(root *meta.Module, uniform func(x []float32, lo, hi float32)) (*Adapter, error) {
	targets, err := c.Match(root)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Config: c, Pairs: make([]Pair, len(targets))}
	for i, t := range targets {
		ranks := t.maps() * t.Rank
		down, up := make([]float32, ranks*t.In), make([]float32, t.Out*ranks)
		in, rank := kaiming(t.In), kaiming(ranks)
		uniform(down, -in, in) // the two maps start as any linear map does
		uniform(up, -rank, rank)
		uniform(down, -in, in) // and then A once more, while B becomes zero
		clear(up)
		a.Pairs[i] = Pair{Target: t, A: tensor.Floats(down, ranks, t.In), B: tensor.Floats(up, t.maps()*t.Out, t.Rank)}
	}
	return a, nil
}

// kaiming is the bound of torch's kaiming_uniform_ with a = √5, in its steps.
func kaiming(fanIn int) float32 {
	gain := math.Sqrt(2.0 / (1 + 5))
	return float32(math.Sqrt(3) * (gain / math.Sqrt(float64(fanIn))))
}
