package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// ReadText reads the tokenizer, chat templates, generation_config.json and the pooling of
// embeddings from the root of files. Missing files are no error. Invalid files are an error, except
// that an invalid pooling is returned with Unsupported set. name is the model's name for errors.
func ReadText(name string, files fs.FS) (t Text, err error) {
	if t.Tokenizer, err = text.ReadTokenizer(name, files); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	t.Missing = err
	if t.Chat, err = text.ReadChat(files, t.Tokenizer); err != nil {
		return t, fmt.Errorf("generate: %s: %w", name, err)
	}
	if t.Generation, err = meta.ReadGenerationConfigFS(files); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("generate: %s: %w", name, err)
	}
	if t.Pooling, err = meta.ReadPooling(files); err != nil {
		t.Pooling.Unsupported = err.Error()
	}
	return t, nil
}

// TokenizerConfig returns the model's tokenizer_config.json. If the file has no chat_template, it
// is set to the contents of chat_template.jinja. The file is read on each call. If the model has no
// such file, the error matches fs.ErrNotExist.
func (m *Model) TokenizerConfig() (map[string]json.RawMessage, error) {
	if m.dispatched == nil {
		return nil, fs.ErrNotExist
	}
	files := m.dispatched.Checkpoint().FS()
	b, err := smallfile.ReadFS(files, "tokenizer_config.json", smallfile.Config)
	if err != nil {
		return nil, fmt.Errorf("generate: %s: %w", m.Name, err)
	}
	config := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("generate: %s: tokenizer_config.json: %w", m.Name, err)
	}
	if config["chat_template"] == nil {
		if b, err := smallfile.ReadFS(files, "chat_template.jinja", smallfile.Config); err == nil {
			if config["chat_template"], err = json.Marshal(string(b)); err != nil {
				return nil, err
			}
		}
	}
	return config, nil
}

// modified returns the time of a file's last change, or now if it has none.
func modified(files fs.FS, name string) time.Time {
	if info, err := fs.Stat(files, name); err == nil && !info.ModTime().IsZero() {
		return info.ModTime()
	}
	return time.Now()
}

func modifiedAt(adapter string) time.Time { return modified(os.DirFS(adapter), "adapter_config.json") }
