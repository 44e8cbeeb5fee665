package finetune

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
)

// isGGUF reports whether a model is a GGUF file, which contains its config and its tokenizer.
func isGGUF(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".gguf") }

// ofGGUF calls f with a file system of the model files that a GGUF file replaces.
func ofGGUF(path string, f func(fs.FS) error) error {
	ck, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ck.Close()
	return f(ck.FS())
}

// readConfig reads a model's config.json.
func readConfig(path string) (config *meta.Config, err error) {
	if isGGUF(path) {
		err = ofGGUF(path, func(files fs.FS) error { config, err = meta.ReadConfigFS(files); return err })
		return config, err
	}
	return meta.ReadConfigFS(os.DirFS(path))
}

// openTokenizer opens a model's tokenizer and chat template.
func openTokenizer(path string) (tokenizer *data.Tokenizer, err error) {
	if isGGUF(path) {
		err = ofGGUF(path, func(files fs.FS) error { tokenizer, err = data.OpenTokenizerFS(path, files); return err })
		if errors.Is(err, fs.ErrNotExist) {
			return nil, misusef("%s: got a GGUF file without a tokenizer that can be read, want one with tokens to train on texts: %w", path, err)
		}
		return tokenizer, err
	}
	tokenizer, err = data.OpenTokenizer(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, misusef("%w (--model needs the files of its tokenizer in the folder, such as tokenizer.json)", err)
	}
	return tokenizer, err
}

// checkGGUF rejects options that a GGUF file does not support.
func (c *job) checkGGUF(path string) error {
	switch {
	case !isGGUF(path):
		return nil
	case c.LoRA == "":
		return misusef("--model %s: the weights of a GGUF file are not trained themselves: train an adapter with --lora r=16", path)
	case c.Merge:
		return misusef("--merge: adapters are not merged into GGUF files: omit --merge and serve the adapter with serve --lora")
	}
	return nil
}
