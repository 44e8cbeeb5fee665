package meta

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/heftai/heft/internal/smallfile"
)

// A Pooling says how an embedding is computed from final hidden states.
type Pooling struct {
	Mode PoolingMode
	// Normalise scales an embedding to length 1.
	Normalise bool
	// Unsupported names a feature of the model that Heft does not implement, or is "".
	Unsupported string
}

// PoolingMode selects the hidden states of which an embedding is made.
type PoolingMode uint8

// The pooling modes.
const (
	PoolLast  PoolingMode = iota // the last token's
	PoolFirst                    // the first token's
	PoolMean                     // the mean over all tokens
)

const (
	modulesFile   = "modules.json"
	poolingFolder = "1_Pooling"
)

// ReadPooling reads the sentence-transformers files in a model's folder: modules.json, the list
// of processing steps, and the pooling's config.json. Without modules.json it looks for the
// pooling in its usual folder. Without a pooling it returns the default for decoders: the last
// token, normalised. Errors are of type [*ConfigError].
func ReadPooling(files fs.FS) (Pooling, error) {
	p := Pooling{Normalise: true}
	folder := poolingFolder
	b, err := readFile(files, modulesFile)
	if err == nil && b != nil {
		p.Normalise, folder = false, ""
		folder, err = p.modules(b)
	}
	if err != nil || folder == "" {
		return p, err
	}
	name := path.Join(folder, "config.json")
	if b, err = readFile(files, name); err != nil || b == nil {
		return p, err
	}
	return p, p.pooling(name, b)
}

// readFile returns the contents of a file, or nil if it does not exist.
func readFile(files fs.FS, name string) ([]byte, error) {
	b, err := smallfile.ReadFS(files, name, smallfile.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &ConfigError{File: name, Reason: err.Error()}
	}
	return b, nil
}

// modules parses modules.json and returns the pooling's folder, or "" if there is none.
func (p *Pooling) modules(b []byte) (folder string, err error) {
	var list []struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return "", &ConfigError{File: modulesFile, Reason: err.Error()}
	}
	for i, m := range list {
		switch kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]; kind {
		case "Transformer":
		case "Pooling":
			folder = m.Path
		case "Normalize":
			p.Normalise = true
		default:
			p.unsupported(fmt.Sprintf("the module %.40q", kind))
		}
		if m.Path != "" && !fs.ValidPath(m.Path) {
			return "", &ConfigError{File: modulesFile, Field: fmt.Sprintf("%d.path", i), Reason: fmt.Sprintf("got %.80q, want a path within the model", m.Path)}
		}
	}
	return folder, nil
}

func (p *Pooling) unsupported(what string) {
	if p.Unsupported == "" {
		p.Unsupported = what
	}
}

// pooling parses the pooling's config.json. It has one mode, by flags or by name;
// sentence-transformers' default is the mean.
func (p *Pooling) pooling(name string, b []byte) error {
	f, err := readFields(name, b)
	if err != nil {
		return err
	}
	var modes []string
	for _, mode := range []string{"cls_token", "mean_tokens", "lasttoken", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens"} {
		if f.bool("pooling_mode_"+mode, mode == "mean_tokens") {
			modes = append(modes, mode)
		}
	}
	if f.has("pooling_mode") {
		modes = []string{f.text("pooling_mode", "")}
	}
	if err := f.err(); err != nil {
		return err
	}
	switch mode := strings.Join(modes, " and "); mode {
	case "cls_token", "cls":
		p.Mode = PoolFirst
	case "mean_tokens", "mean":
		p.Mode = PoolMean
	case "lasttoken":
		p.Mode = PoolLast
	case "":
		p.unsupported("no pooling at all")
	default:
		p.unsupported("pooling by " + mode)
	}
	return nil
}
