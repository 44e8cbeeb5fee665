package tokenizer

import (
	"fmt"
	"io/fs"
	"strings"
)

// How to make a tokenizer.json of another format, with the packages that it takes.
const (
	viaAuto = `pip install transformers sentencepiece tiktoken && ` +
		`python -c "from transformers import AutoTokenizer as T; T.from_pretrained('DIR').save_pretrained('DIR')"`
	viaTikToken = `pip install transformers tiktoken && ` +
		`python -c "from transformers.convert_slow_tokenizer import TikTokenConverter as C; C('DIR/FILE').converted().save('DIR/tokenizer.json')"` +
		` (give C the pattern and the extra_special_tokens of the model's own tokenizer class)`
	viaMistral = `pip install transformers tiktoken && ` +
		`python -c "from transformers.integrations.mistral.tokenizer import MistralConverter as C; C('DIR/tekken.json').converted().save('DIR/tokenizer.json')"`
)

// otherFormats are files with a vocabulary in other formats than tokenizer.json.
var otherFormats = []struct {
	files   []string // all of them; patterns of fs.Glob
	convert string   // with FILE for the first file
}{
	{[]string{"tekken.json"}, viaMistral},
	{[]string{"tiktoken.model"}, viaTikToken},
	{[]string{"*.tiktoken"}, viaTikToken}, // qwen.tiktoken
	{[]string{"tokenizer.model"}, viaAuto},
	{[]string{"vocab.json", "merges.txt"}, viaAuto},
	{[]string{"vocab.json"}, viaAuto},
	{[]string{"vocab.txt"}, viaAuto},
	{[]string{"spiece.model"}, viaAuto},
	{[]string{"sentencepiece.bpe.model"}, viaAuto},
}

// unknownError is the error for a vocabulary that Heft could read, if it knew how its texts are split.
type unknownError struct{ reason string }

func (e *unknownError) Error() string { return e.reason }

// A MissingError says that a folder has no tokenizer.json, and no files that can take its place. It is
// fs.ErrNotExist.
type MissingError struct {
	Folder  string
	Files   []string // that hold a vocabulary in another format; empty for none
	Reason  string   // why these files are not supported; "" if their format is not
	Convert string   // the command that makes a tokenizer.json of them, with DIR for the folder
}

// Error implements error.
func (e *MissingError) Error() string {
	if len(e.Files) == 0 {
		return fmt.Sprintf("tokenizer: %s has no %s", e.Folder, FileName)
	}
	if e.Reason != "" {
		return fmt.Sprintf("tokenizer: %s has %s and no %s: %s: convert it with: %s", e.Folder, e.found(), FileName, e.Reason, e.Convert)
	}
	if len(e.Files) == 1 && e.Files[0] == "vocab.json" {
		return fmt.Sprintf("tokenizer: %s has vocab.json, but neither merges.txt nor %s: fetch merges.txt, too, or convert it with: %s", e.Folder, FileName, e.Convert)
	}
	return fmt.Sprintf("tokenizer: %s has %s, which is not supported, and no %s: convert it with: %s", e.Folder, e.found(), FileName, e.Convert)
}

// found lists the files.
func (e *MissingError) found() string {
	if len(e.Files) == 2 {
		return e.Files[0] + " with " + e.Files[1]
	}
	return e.Files[0]
}

// Unwrap makes the error one for a missing file.
func (e *MissingError) Unwrap() error { return fs.ErrNotExist }

// missing looks for a vocabulary in another format. reason says why it is not supported, if that is not its format.
func missing(fsys fs.FS, name, reason string) error {
	for _, o := range otherFormats {
		var files []string
		for _, pattern := range o.files {
			if found, _ := fs.Glob(fsys, pattern); len(found) > 0 {
				files = append(files, found[0])
			}
		}
		if len(files) == len(o.files) {
			return &MissingError{Folder: name, Files: files, Reason: reason, Convert: strings.ReplaceAll(o.convert, "FILE", files[0])}
		}
	}
	return &MissingError{Folder: name}
}
