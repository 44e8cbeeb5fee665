// Package modelfiles writes the directory of a model, which loader.Open, serve and transformers
// read: its weights, rounded to a dtype, its config and its tokenizer files.
package modelfiles

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/tensor"
)

// Options are train.SaveModelOptions.
type Options struct {
	// MaxShardSize is the largest number of bytes of tensors in one file. 0 means the reference's
	// 10 GB, and a negative number no limit. A tensor that is larger gets a file of its own.
	MaxShardSize int64
	// DType is the dtype that weights are rounded to: meta.Float32, meta.BFloat16 or
	// meta.Float16. meta.NoDType leaves them unchanged.
	DType meta.DType
	// From is the directory of the model that was trained, from which the config and the
	// tokenizer files are copied. If it is empty, nothing is copied.
	From string
}

// Save writes m's weights into dir, as train.SaveModel documents.
func Save(m tensor.Module, dir string, o Options) error {
	tensors, err := modelTensors(m, o.DType)
	if err != nil {
		return err
	}
	limit := o.MaxShardSize
	switch {
	case limit == 0:
		limit = 10e9
	case limit < 0:
		limit = 0
	}
	if err := loader.Save(dir, tensors, loader.SaveOptions{MaxShardSize: limit}); err != nil {
		return err
	}
	if o.From == "" {
		return nil
	}
	return CopyBeside(dir, o.From, o.DType)
}

// modelTensors returns m's weights under the names of its checkpoint, or of its parameters if it
// has none.
func modelTensors(m tensor.Module, dtype meta.DType) (iter.Seq[loader.NamedTensor], error) {
	tensors := slices.Values(checkpoint.Tensors(checkpoint.Arrays(m, false)))
	if c, ok := m.(interface {
		Checkpoint() (iter.Seq[loader.NamedTensor], error)
	}); ok {
		var err error
		if tensors, err = c.Checkpoint(); err != nil {
			return nil, err
		}
	}
	switch dtype {
	case meta.NoDType:
		return tensors, nil
	case meta.Float32, meta.BFloat16, meta.Float16:
	default:
		return nil, fmt.Errorf("got dtype %v, want float32, bfloat16 or float16", dtype)
	}
	return func(yield func(loader.NamedTensor) bool) {
		var buf []byte
		for t := range tensors {
			if !yield(rounded(t, dtype, &buf)) {
				return
			}
		}
	}, nil
}

// rounded returns a float32 tensor as another dtype, which is converted when it is written. It
// returns other tensors, and those to be kept exact, unchanged.
func rounded(t loader.NamedTensor, to meta.DType, buf *[]byte) loader.NamedTensor {
	if t.DType != meta.Float32 || to == meta.Float32 || t.Exact {
		return t
	}
	wide := t.Bytes
	t.DType = to
	t.Bytes = func() ([]byte, error) {
		b, err := wide()
		if err != nil {
			return nil, err
		}
		out := slices.Grow((*buf)[:0], len(b)/2)
		for i := 0; i+4 <= len(b); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
			if to == meta.BFloat16 {
				out = binary.LittleEndian.AppendUint16(out, floats.ToBFloat16(v))
			} else {
				out = binary.LittleEndian.AppendUint16(out, floats.ToFloat16(v))
			}
		}
		*buf = out
		return out, nil
	}
	return t
}

// besideWeights are the files in a model's directory besides its weights: config, tokenizer and
// chat template.
var besideWeights = []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model",
	"tiktoken.model", "qwen.tiktoken", "tekken.json",
	"chat_template.json", "chat_template.jinja"}

// CopyBeside copies the config and the tokenizer files from a model's directory. The copied
// config names the dtype of the weights.
func CopyBeside(dir, from string, dtype meta.DType) error {
	if same, err := sameFolder(dir, from); err != nil || same {
		return err
	}
	for _, name := range besideWeights {
		b, err := smallfile.Read(filepath.Join(from, name), smallfile.Tokenizer)
		if errors.Is(err, fs.ErrNotExist) && name != "config.json" {
			continue
		}
		if err == nil && name == "config.json" {
			b, err = configWithDType(b, dtype)
		}
		if err == nil {
			err = atomicfile.WriteFile(filepath.Join(dir, name), b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sameFolder(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	if err != nil {
		return false, err
	}
	return os.SameFile(x, y), nil
}

// configWithDType returns a config.json with the weights' dtype. It returns b if that has the
// dtype already.
func configWithDType(b []byte, dtype meta.DType) ([]byte, error) {
	if dtype == meta.NoDType {
		return b, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var config map[string]any
	if err := d.Decode(&config); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	key := "dtype"
	if _, old := config["torch_dtype"]; old && config["dtype"] == nil {
		key = "torch_dtype"
	}
	if said, _ := config[key].(string); strings.TrimPrefix(said, "torch.") == dtype.String() {
		return b, nil
	}
	config[key] = dtype.String()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err := e.Encode(config)
	return out.Bytes(), err
}
