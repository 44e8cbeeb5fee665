package text

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/hubcache"
	"github.com/heftai/heft/internal/tokenizer"
)

// Open reads the tokenizer and the chat templates of a model: a folder, or ORG/NAME of a model in the
// hub cache, as package loader finds it. A model without tokenizer.json, and without a vocabulary in
// another format that Heft reads, is an error for which
// errors.Is(err, fs.ErrNotExist) holds. A model without a chat template is no error: [Chat.Render]
// then fails.
func Open(model string) (*Tokenizer, *Chat, error) {
	dir, err := hubcache.Folder(model)
	if err != nil {
		return nil, nil, fmt.Errorf("text: %w", err)
	}
	return OpenFS(dir, os.DirFS(dir))
}

// OpenFS is [Open] for a model at the root of files. Errors call it name.
func OpenFS(name string, files fs.FS) (*Tokenizer, *Chat, error) {
	t, err := ReadTokenizer(name, files)
	if err != nil {
		return nil, nil, err
	}
	c, err := ReadChat(files, t)
	if err != nil {
		return nil, nil, fmt.Errorf("text: %s: %w", name, err)
	}
	return t, c, nil
}

// ReadTokenizer reads tokenizer.json, or a vocabulary in another format, at the root of files. Errors call the model name.
func ReadTokenizer(name string, files fs.FS) (*Tokenizer, error) {
	t, err := tokenizer.LoadFS(files, name)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// ParseTokenizer makes a tokenizer of the bytes of a tokenizer.json. It does not keep them.
func ParseTokenizer(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := tokenizer.Parse(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// ReadChat reads the chat templates and special tokens at the root of files:
// chat_template.jinja, else tokenizer_config.json, else chat_template.json. A model without any
// gives a Chat without a template. A template that does not parse is reported by [Chat.Err] and
// [Chat.Render], not here.
//
// The special tokens of t help to find the notation of tool calls where the template does not
// tell; t may be nil.
func ReadChat(files fs.FS, t *Tokenizer) (*Chat, error) {
	set, err := chat.Load(files)
	if err != nil {
		return nil, err
	}
	return newChat(set, t), nil
}
