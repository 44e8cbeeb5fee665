package meta

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/heftai/heft/internal/smallfile"
)

// A Config is a parsed config.json. It accepts the field names of published models (rope_theta,
// rope_scaling, torch_dtype) and those of transformers 5 (rope_parameters, dtype). It is
// immutable and safe for concurrent use.
//
// The exported fields apply to every architecture. [New] reads the other fields.
type Config struct {
	ModelType     string
	Architectures []string // class names, as stated
	DType         DType    // of the weights, or NoDType if the config has none

	// Special token ids; the defaults are the architecture's. A BOS or Pad of -1, or an empty
	// EOS, means none. generation_config.json overrides them.
	BOS, Pad int
	EOS      []int

	raw    []byte
	values map[string]any // of the whole file
	// textType is the model_type of the text model, and text holds its fields. For models that
	// are not wrappers they are the config's own.
	textType string
	text     map[string]any
	textAt   string // path of text, with a final dot
}

// ReadConfig parses the contents of a config.json. It checks the fields that all architectures
// share; [New] checks the others. Errors are of type [*ConfigError].
func ReadConfig(data []byte) (*Config, error) {
	f, err := readFields("config.json", data)
	if err != nil {
		return nil, err
	}
	c := &Config{
		ModelType:     f.text("model_type", ""),
		Architectures: f.texts("architectures"),
		raw:           slices.Clone(data),
		values:        f.values,
	}
	if c.ModelType == "" {
		c.ModelType = modelTypeOf(c.Architectures)
	}
	c.textType, c.text = c.ModelType, c.values
	if w := lookupWrapper(c.ModelType); w != nil {
		f = w.textFields(f)
		c.textType, c.text, c.textAt = w.textType(f), f.values, f.at
	}
	// transformers 5 writes dtype. If both exist, dtype is the newer one.
	if c.DType = f.dtype("dtype"); c.DType == NoDType {
		c.DType = f.dtype("torch_dtype")
	}
	bos, eos := -1, []int(nil)
	if a := lookup(c.textType); a != nil {
		bos, eos = a.bos, a.eos
	}
	if f.null("bos_token_id") {
		bos = -1
	}
	c.BOS = f.token("bos_token_id", bos)
	c.Pad = f.token("pad_token_id", -1)
	if c.EOS = f.tokens("eos_token_id"); c.EOS == nil && !f.null("eos_token_id") {
		c.EOS = eos
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// ReadConfigFile reads the config.json at path.
func ReadConfigFile(path string) (*Config, error) {
	data, err := smallfile.Read(path, smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return ReadConfig(data)
}

// ReadConfigFS reads the config.json at the root of fsys.
func ReadConfigFS(fsys fs.FS) (*Config, error) {
	data, err := smallfile.ReadFS(fsys, "config.json", smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return ReadConfig(data)
}

// Raw returns the contents of the file, for writing it next to saved weights. The caller must not
// change the slice.
func (c *Config) Raw() []byte { return c.raw }

// Field returns the value of a top-level field, or else of a field of the text model, as
// encoding/json decodes it, with numbers as json.Number. It returns nil if the field is missing
// or null. The caller must not change the value.
func (c *Config) Field(name string) any {
	if v := c.values[name]; v != nil {
		return v
	}
	return c.text[name]
}

// fields returns the fields of the text model.
func (c *Config) fields() *fields {
	return &fields{at: c.textAt, values: c.text, errs: &fieldErrors{file: "config.json"}}
}
