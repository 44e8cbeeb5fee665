package text

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/hubcache"
	"github.com/heftai/heft/internal/tokenizer"
)

// Open reads the tokenizer and the chat templates of a model. model is a folder, or ORG/NAME for a
// model in the hub cache, as in package loader. If the model has no tokenizer.json and no
// vocabulary in another supported format, the error matches fs.ErrNotExist. A model without a chat
// template is no error; [Chat.Render] then fails.
func Open(model string) (*Tokenizer, *Chat, error) {
	dir, err := hubcache.Folder(model)
	if err != nil {
		return nil, nil, fmt.Errorf("text: %w", err)
	}
	return OpenFS(dir, os.DirFS(dir))
}

// OpenFS is [Open] for a model at the root of files. name is the model's name in errors.
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

// ReadTokenizer reads tokenizer.json, or a vocabulary in another format, from the root of files.
// name is the model's name in errors.
func ReadTokenizer(name string, files fs.FS) (*Tokenizer, error) {
	t, err := tokenizer.LoadFS(files, name)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// ParseTokenizer returns the tokenizer of a tokenizer.json. It does not retain the slice.
func ParseTokenizer(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := tokenizer.Parse(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// ReadChat reads the chat templates and special tokens from the root of files: from
// chat_template.jinja, or tokenizer_config.json, or chat_template.json. A model without these files
// gives a Chat without a template. If a template does not parse, [Chat.Err] and [Chat.Render]
// return the error, not ReadChat.
//
// The special tokens of t help to find the notation of tool calls if the template does not show it;
// t may be nil.
func ReadChat(files fs.FS, t *Tokenizer) (*Chat, error) {
	set, err := chat.Load(files)
	if err != nil {
		return nil, err
	}
	return newChat(set, t), nil
}
