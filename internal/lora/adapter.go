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

// An Adapter holds the matrices of all targets of a config, in the order of the tree.
type Adapter struct {
	Config *Config
	Pairs  []Pair
	Saved  []Saved
	// Outside are parameters of modules that the adapter has and the model's tree does not, such as the
	// score.weight of a reward model.
	Outside []Outside

	file *loader.Checkpoint // the mapped file that Pairs refer to; nil if they have their own memory
}

// A Pair is the update of one linear map, or of each map in a stack of experts. A is [Rank, In] and
// B is [Out, Rank], of float32, bfloat16 or float16, in host memory. For a stack, each matrix
// concatenates those of all experts by rows.
type Pair struct {
	Target
	A, B tensor.Tensor
	// Magnitude is DoRA's length of each row, [Out, 1]; zero without DoRA.
	Magnitude tensor.Tensor
	// Who has the weight sets one of the two with DoRA: the squared lengths of the rows of W, or the
	// lengths of those of W + Scale·B·A.
	Squares []float64
	Lengths []float32
}

// tensors returns the tensors of p with their names, as they are in memory.
func (p *Pair) tensors() []matrixOf {
	list := []matrixOf{{p.Name("A"), &p.A}, {p.Name("B"), &p.B}}
	if !p.Magnitude.IsZero() {
		list = append(list, matrixOf{p.Name(magnitude), &p.Magnitude})
	}
	return list
}

// matrixOf is a tensor of a pair.
type matrixOf struct {
	name string
	*tensor.Tensor
}

// An Outside is a parameter with its name in the model that PEFT adapts.
type Outside struct {
	Name string
	tensor.Tensor
}

// scoring is the task of adapters of models that score texts.
const scoring = "SEQ_CLS"

// Open reads the folder of an adapter for the model with tree root. The matrices refer to the
// mapped file and are valid until [Adapter.Close]. Errors name the file and the field or tensor. The
// adapter must have the parameters outside of the tree that outside names, and no others.
func Open(dir string, root *meta.Module, outside ...string) (*Adapter, error) {
	config, err := readConfigFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		return nil, err
	}
	if config.TaskType == scoring && len(outside) == 0 {
		return nil, fmt.Errorf("lora: %s: task_type is %s: the adapter is of a model that scores texts, want one that generates them", dir, scoring)
	}
	targets, err := config.Match(root)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	path := filepath.Join(dir, weightsFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, stem+".bin")); err == nil {
			return nil, fmt.Errorf("lora: %s: %s.bin is a pickle, which is not supported; save the adapter as safetensors", dir, stem)
		}
	}
	file, err := loader.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	a := &Adapter{Config: config, file: file}
	if err := a.read(root, targets, outside); err != nil {
		_ = file.Close() // the first error matters more
		if config.BaseModel != "" {
			err = fmt.Errorf("%w; the adapter was made for %.200q", err, config.BaseModel)
		}
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

// Close unmaps the file. Adapters that were not read from a file need no Close.
func (a *Adapter) Close() error {
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file, a.Pairs, a.Saved, a.Outside = nil, nil, nil, nil
	return err
}

// Rank returns the largest rank of the pairs.
func (a *Adapter) Rank() int {
	most := 0
	for i := range a.Pairs {
		most = max(most, a.Pairs[i].Rank)
	}
	return most
}

// NumParameters returns the number of elements of all matrices.
func (a *Adapter) NumParameters() int64 {
	var n int64
	for i := range a.Pairs {
		p := &a.Pairs[i]
		for _, m := range p.tensors() {
			n += int64(m.Elements())
		}
	}
	for i := range a.Saved {
		n += int64(a.Saved[i].Elements())
	}
	return n
}

// Bytes returns the size of all matrices as stored.
func (a *Adapter) Bytes() int64 {
	var n int64
	for i := range a.Pairs {
		for _, m := range a.Pairs[i].tensors() {
			n += m.Bytes()
		}
	}
	for i := range a.Saved {
		n += a.Saved[i].Bytes()
	}
	return n
}

// prefix precedes a module's path in tensor names.
const prefix = "base_model.model."

// magnitude is what [Target.Name] calls the magnitude.
const magnitude = "magnitude_vector"

// Name returns PEFT's tensor name of matrix "A" or "B", or of the "magnitude_vector". PEFT nests the
// adapted parameters of a stack: each wraps the one before.
func (t *Target) Name(matrix string) string {
	name := prefix + t.Path + strings.Repeat(".base_layer", t.depth) + ".lora_" + matrix
	if matrix == magnitude {
		return name
	}
	return name + ".weight"
}

// maps returns the number of linear maps in t.
func (t *Target) maps() int { return max(t.Experts, 1) }

// read finds the matrices of every target, and the saved modules. Any other tensor in the file is an
// error, because ignoring it would change the adapter. The exception is copies of the base model's
// embeddings, which PEFT adds when the head is adapted.
func (a *Adapter) read(root *meta.Module, targets []Target, outside []string) (err error) {
	known := map[string]bool{}
	if a.Pairs, err = a.Config.pairs(a.file, targets); err != nil {
		return err
	}
	if a.Saved, err = a.Config.saved(root); err != nil {
		return err
	}
	for i := range a.Pairs {
		for _, m := range a.Pairs[i].tensors() {
			known[m.name] = true
		}
	}
	for i := range a.Saved {
		s := &a.Saved[i]
		if s.Tensor, err = tensorOf(a.file, s.Name(), s.param.Shape); err != nil {
			return err
		}
		known[s.Name()] = true
	}
	for _, name := range outside {
		t, err := tensorOf(a.file, prefix+name, nil)
		if err != nil {
			return err
		}
		a.Outside, known[prefix+name] = append(a.Outside, Outside{name, t}), true
	}
	if len(known) == a.file.Len() {
		return nil
	}
	for t := range a.file.Tensors() {
		if !known[t.Name] && !copied(t, root) {
			return unexpected(t.Name, root)
		}
	}
	return nil
}

// unexpected returns the error of a tensor that is not the adapter's. It names the first module of its path that the model
// lacks, such as a layer.
func unexpected(name string, root *meta.Module) error {
	path, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), ".lora_")
	at := root
	for end := 0; end < len(path); end++ {
		step, _, _ := strings.Cut(path[end:], ".")
		if _, experts := at.Spec.(*meta.MoESpec); experts {
			break // their stack has no modules
		}
		if at = at.Child(step); at == nil {
			return fmt.Errorf("tensor %.200q: this model has no module %.200s", name, path[:end+len(step)])
		}
		end += len(step)
	}
	return fmt.Errorf("tensor %.200q does not belong to a module in target_modules or modules_to_save", name)
}

// pairs finds the matrices of every target.
func (c *Config) pairs(file *loader.Checkpoint, targets []Target) ([]Pair, error) {
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
		list[i].A, list[i].B = t.columns(list[i].A, true), t.rows(list[i].B, true)
		if c.DoRA {
			if list[i].Magnitude, err = matrix(file, t.Name(magnitude), t.Out); err != nil {
				return nil, err
			}
			list[i].Magnitude = t.rows(list[i].Magnitude, true)
		}
	}
	return list, nil
}

// copied reports whether a tensor is a copy of the weight of the embedding or the head.
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

// matrix reads a tensor of a shape. A vector becomes a matrix of one column.
func matrix(file *loader.Checkpoint, name string, shape ...int) (tensor.Tensor, error) {
	t, err := tensorOf(file, name, shape)
	if err == nil && len(shape) == 1 {
		return tensor.Of(t.Data[:t.Bytes()], t.DType, shape[0], 1)
	}
	return t, err
}

// tensorOf reads a tensor that must have finite numbers of a floating-point format, and the given shape unless that
// is nil.
func tensorOf(file *loader.Checkpoint, name string, shape []int) (tensor.Tensor, error) {
	t, ok := file.Lookup(name)
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("tensor %s is missing", name)
	}
	if shape != nil && !slices.Equal(t.Shape, shape) {
		return tensor.Tensor{}, fmt.Errorf("tensor %s has shape %v, want %v", name, t.Shape, shape)
	}
	switch t.DType {
	case meta.Float32, meta.BFloat16, meta.Float16:
	default:
		return tensor.Tensor{}, fmt.Errorf("tensor %s has dtype %v, want float32, bfloat16 or float16", t.Name, t.DType)
	}
	if err := finite(t); err != nil {
		return tensor.Tensor{}, err
	}
	data, err := t.Bytes()
	if err != nil {
		return tensor.Tensor{}, err
	}
	return tensor.Of(data, t.DType, t.Shape...)
}

// finite fails if t contains an infinity or a NaN, which would make every output NaN. It reads the
// whole tensor, a few kilobytes at a time.
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

// New creates an adapter of float32 matrices in its own memory. A is uniform within ±1/√In, torch's
// default for a linear map, and B is zero. uniform fills x with numbers from lo to hi. New calls it
// in the order in which PEFT draws, so torch's generator produces equal matrices. With DoRA, the caller
// sets the magnitudes to the lengths of the rows of the weights; it also sets the values of Saved.
func (c *Config) New(root *meta.Module, uniform func(x []float32, lo, hi float32)) (*Adapter, error) {
	targets, err := c.Match(root)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Config: c, Pairs: make([]Pair, len(targets))}
	if a.Saved, err = c.saved(root); err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	if len(c.Save) > 0 && len(a.Saved) == 0 {
		return nil, fmt.Errorf("lora: modules_to_save %s: no module of this model has such a name", strings.Join(c.Save, ", "))
	}
	for i, t := range targets {
		ranks := t.maps() * t.Rank
		down, up := make([]float32, ranks*t.In), make([]float32, t.Out*ranks)
		in, rank := kaiming(t.In), kaiming(ranks)
		uniform(down, -in, in) // PEFT first initialises both maps as linear maps
		uniform(up, -rank, rank)
		uniform(down, -in, in) // and then A again, while B becomes zero
		clear(up)
		a.Pairs[i] = Pair{Target: t, A: t.columns(tensor.Floats(down, ranks, t.In), true), B: tensor.Floats(up, t.maps()*t.Out, t.Rank)}
	}
	return a, nil
}

// kaiming is the bound of torch's kaiming_uniform_ with a = √5, rounded in the same steps.
func kaiming(fanIn int) float32 {
	gain := math.Sqrt(2.0 / (1 + 5))
	return float32(math.Sqrt(3) * (gain / math.Sqrt(float64(fanIn))))
}
