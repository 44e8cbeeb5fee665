package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Config is what the files beside tokenizer.json say about it: the roles of tokens,
// the chat templates and the limit on lengths. A field is zero where the files are
// silent or have something of another type there.
type Config struct {
	// Class is tokenizer_class.
	Class string
	// Special has the content of each token with a role, by the role's name in the
	// file: bos_token, eos_token, unk_token, pad_token, sep_token, cls_token,
	// mask_token and whatever else ends in _token. A role without a token is absent.
	Special map[string]string
	// Additional are the special tokens that have no role.
	Additional []string
	// AddBOS and AddEOS are add_bos_token and add_eos_token, nil where not given.
	AddBOS, AddEOS *bool
	// ChatTemplate is the default chat template in Jinja, "" if there is none.
	ChatTemplate string
	// ChatTemplates are all chat templates by name; "default" is ChatTemplate.
	ChatTemplates map[string]string
	// MaxLength is model_max_length, 0 where it is absent or means no limit.
	MaxLength int
}

// The files that [LoadConfig] reads.
const (
	configFile      = "tokenizer_config.json"
	specialFile     = "special_tokens_map.json"
	templateFile    = "chat_template.jinja"
	templateJSON    = "chat_template.json"
	templatesFolder = "additional_chat_templates"
	defaultTemplate = "default"
)

// noLimit is the least model_max_length that stands for no limit: the reference
// writes 1e30, others a large power of two.
const noLimit = 1 << 40

// LoadConfig reads tokenizer_config.json, special_tokens_map.json and the chat
// templates in dir. Missing files are no error; broken JSON is.
func LoadConfig(dir string) (Config, error) { return LoadConfigFS(os.DirFS(dir), dir) }

// LoadConfigFS is [LoadConfig] for a file system; name is what errors call it.
func LoadConfigFS(fsys fs.FS, name string) (Config, error) {
	c := Config{Special: map[string]string{}, ChatTemplates: map[string]string{}}
	for _, file := range []string{templateJSON, configFile, specialFile} {
		members, err := readMembers(fsys, file)
		if err != nil {
			return Config{}, fmt.Errorf("tokenizer: %s: %w", path.Join(name, file), err)
		}
		switch file {
		case configFile:
			c.read(members)
			fallthrough
		case specialFile:
			c.readSpecial(members)
		}
		if file != specialFile {
			c.readTemplates(members["chat_template"])
		}
	}
	if err := c.readTemplateFiles(fsys); err != nil {
		return Config{}, fmt.Errorf("tokenizer: %s: %w", name, err)
	}
	c.ChatTemplate = c.ChatTemplates[defaultTemplate]
	return c, nil
}

// readMembers decodes a JSON object one level deep; a missing file has no members.
func readMembers(fsys fs.FS, file string) (map[string]json.RawMessage, error) {
	data, err := fs.ReadFile(fsys, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	err = json.Unmarshal(data, &members)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return nil, fmt.Errorf("a %s, not an object", wrong.Value)
	}
	return members, err
}

// decodeAs decodes raw if it is a T and reports whether it is.
func decodeAs[T any](raw json.RawMessage) (v T, ok bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return v, false
	}
	ok = json.Unmarshal(raw, &v) == nil
	return v, ok
}

func (c *Config) read(members map[string]json.RawMessage) {
	c.Class, _ = decodeAs[string](members["tokenizer_class"])
	if v, ok := decodeAs[bool](members["add_bos_token"]); ok {
		c.AddBOS = &v
	}
	if v, ok := decodeAs[bool](members["add_eos_token"]); ok {
		c.AddEOS = &v
	}
	if v, ok := decodeAs[float64](members["model_max_length"]); ok && v >= 1 && v < noLimit {
		c.MaxLength = int(v)
	}
}

// readSpecial takes the roles that are not taken yet.
func (c *Config) readSpecial(members map[string]json.RawMessage) {
	for role, raw := range members {
		if !strings.HasSuffix(role, "_token") || strings.HasPrefix(role, "add_") || c.Special[role] != "" {
			continue
		}
		if content := tokenContent(raw); content != "" {
			c.Special[role] = content
		}
	}
	for _, name := range []string{"additional_special_tokens", "extra_special_tokens"} {
		list, _ := decodeAs[[]json.RawMessage](members[name])
		if c.Additional != nil {
			break
		}
		for _, raw := range list {
			if content := tokenContent(raw); content != "" {
				c.Additional = append(c.Additional, content)
			}
		}
	}
	named, _ := decodeAs[map[string]json.RawMessage](members["extra_special_tokens"])
	for role, raw := range named {
		if content := tokenContent(raw); content != "" && c.Special[role] == "" {
			c.Special[role] = content
		}
	}
}

// tokenContent decodes a token: its content, or an object that has it.
func tokenContent(raw json.RawMessage) string {
	if content, ok := decodeAs[string](raw); ok {
		return content
	}
	token, _ := decodeAs[struct{ Content string }](raw)
	return token.Content
}

// readTemplates takes chat_template: a string, a list of named ones, or an object
// of them.
func (c *Config) readTemplates(raw json.RawMessage) {
	if text, ok := decodeAs[string](raw); ok {
		c.ChatTemplates[defaultTemplate] = text
		return
	}
	list, _ := decodeAs[[]struct{ Name, Template string }](raw)
	for _, t := range list {
		c.ChatTemplates[t.Name] = t.Template
	}
	named, _ := decodeAs[map[string]string](raw)
	for name, text := range named {
		c.ChatTemplates[name] = text
	}
}

// readTemplateFiles reads the templates that have files of their own; they override
// those in JSON.
func (c *Config) readTemplateFiles(fsys fs.FS) error {
	files := map[string]string{templateFile: defaultTemplate}
	entries, err := fs.ReadDir(fsys, templatesFolder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".jinja"); ok && !e.IsDir() {
			files[path.Join(templatesFolder, e.Name())] = name
		}
	}
	for file, name := range files {
		text, err := fs.ReadFile(fsys, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		c.ChatTemplates[name] = string(text)
	}
	return nil
}
