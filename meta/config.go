package meta

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
	// quantFile has the fields of hf_quant_config.json, or is nil if config.json says how weights
	// are quantised.
	quantFile *fields
}

// QuantConfigName is the name of the file beside config.json in which modelopt says how weights
// are quantised.
const QuantConfigName = "hf_quant_config.json"

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

// ReadConfigs parses the contents of a config.json and those of the hf_quant_config.json beside it.
// quant is nil if there is none. It is read if config.json has no quantization_config.
func ReadConfigs(data, quant []byte) (*Config, error) {
	return readConfigs(data, func() ([]byte, error) { return quant, nil })
}

// readConfigs calls beside for the contents of hf_quant_config.json if they are needed.
func readConfigs(data []byte, beside func() ([]byte, error)) (*Config, error) {
	c, err := ReadConfig(data)
	if err != nil || c.Field(quantConfig) != nil {
		return c, err
	}
	quant, err := beside()
	if errors.Is(err, fs.ErrNotExist) || err == nil && quant == nil {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return c, c.readQuantFile(quant)
}

// readQuantFile reads hf_quant_config.json, whose field quantization has the fields of modelopt's
// quantization_config.
func (c *Config) readQuantFile(data []byte) error {
	f, err := readFields(QuantConfigName, data)
	if err != nil {
		return err
	}
	q := f.object("quantization")
	if q == nil {
		f.fail("quantization", "is missing")
		return f.err()
	}
	q.values["quant_method"] = "modelopt"
	q.file, c.quantFile = QuantConfigName, q
	return f.err()
}

// quantFields returns the fields that say how weights are quantised, with the errors of the text
// model's fields f. It returns nil if there are none.
func (c *Config) quantFields(f *fields) *fields {
	if q := c.quantFile; q != nil {
		return &fields{file: q.file, at: q.at, values: q.values, errs: f.errs}
	}
	values, ok := f.values[quantConfig].(map[string]any)
	if !ok {
		return nil
	}
	at := f.at
	if c.values[quantConfig] != nil {
		at = "" // the whole model's config decides
	}
	return &fields{at: at + quantConfig + ".", values: values, errs: f.errs}
}

// ReadConfigFile reads the config.json at path, and hf_quant_config.json beside it if
// [ReadConfigs] needs it.
func ReadConfigFile(path string) (*Config, error) {
	data, err := smallfile.Read(path, smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return readConfigs(data, func() ([]byte, error) {
		return smallfile.Read(filepath.Join(filepath.Dir(path), QuantConfigName), smallfile.Config)
	})
}

// ReadConfigFS is [ReadConfigFile] for the config.json at the root of fsys.
func ReadConfigFS(fsys fs.FS) (*Config, error) {
	data, err := smallfile.ReadFS(fsys, "config.json", smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return readConfigs(data, func() ([]byte, error) { return smallfile.ReadFS(fsys, QuantConfigName, smallfile.Config) })
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
