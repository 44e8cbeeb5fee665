package chat

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/smallfile"
)

// Set has a model's chat templates by name, usually only one called "default", and its special
// tokens for [Request]. It does not change after [Load] and is safe for concurrent use.
type Set struct {
	SpecialTokens map[string]string
	templates     map[string]parsed
}

// parsed is a template, or the error of parsing it.
type parsed struct {
	template *Template
	err      error
}

// Load reads a model's templates and special tokens from the files that transformers reads.
// Templates are in chat_template.jinja and additional_chat_templates/tool_use.jinja; or in
// tokenizer_config.json (chat_template); or in chat_template.json. Special tokens are in
// tokenizer_config.json or in special_tokens_map.json. A model without these files has an empty
// Set.
//
// Load accepts a template that does not parse, because the model can still serve completions.
// [Set.Template] returns the error.
func Load(files fs.FS) (*Set, error) {
	config, err := readObject(files, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	tokens, err := readObject(files, "special_tokens_map.json")
	if err != nil {
		return nil, err
	}
	s := &Set{SpecialTokens: map[string]string{}, templates: map[string]parsed{}}
	s.addTokens(config)
	extra, _ := config.Get("extra_special_tokens")
	if d, ok := extra.(*Dict); ok {
		s.addTokens(d)
	}
	s.addTokens(tokens)
	return s, s.findTemplates(files, config)
}

func (s *Set) findTemplates(files fs.FS, config *Dict) error {
	for name, file := range map[string]string{"default": "chat_template.jinja", "tool_use": "additional_chat_templates/tool_use.jinja"} {
		source, err := smallfile.ReadFS(files, file, smallfile.Config)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("chat: %s: %w", file, err)
		}
		if err == nil {
			s.add(name, string(source))
		}
	}
	if len(s.templates) > 0 {
		return nil
	}
	if err := s.addConfigured("tokenizer_config.json", config); err != nil || len(s.templates) > 0 {
		return err
	}
	legacy, err := readObject(files, "chat_template.json")
	if err != nil {
		return err
	}
	return s.addConfigured("chat_template.json", legacy)
}

// readObject reads a JSON object. For a missing file it returns an empty object.
func readObject(files fs.FS, file string) (*Dict, error) {
	data, err := smallfile.ReadFS(files, file, smallfile.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return &Dict{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", file, err)
	}
	v, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", file, err)
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, fmt.Errorf("chat: %s: not an object", file)
	}
	return d, nil
}

func (s *Set) add(name, source string) {
	template, err := Parse(source)
	s.templates[name] = parsed{template, err}
}

// addConfigured adds the chat_template of a configuration: a template, or a list of objects with
// name and template.
func (s *Set) addConfigured(file string, config *Dict) error {
	v, _ := config.Get("chat_template")
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		s.add("default", v)
		return nil
	case *List:
		for i, item := range v.Items {
			d, ok := item.(*Dict)
			if !ok {
				return fmt.Errorf("chat: %s: chat_template[%d] must be an object", file, i)
			}
			name, _ := d.Get("name")
			source, _ := d.Get("template")
			n, ok1 := name.(string)
			t, ok2 := source.(string)
			if !ok1 || !ok2 {
				return fmt.Errorf("chat: %s: chat_template[%d] must have a name and a template", file, i)
			}
			s.add(n, t)
		}
		return nil
	}
	return fmt.Errorf("chat: %s: chat_template must be a string or a list", file)
}

// addTokens adds the special tokens of a configuration that are not known yet. A token is a string
// or an object with content.
func (s *Set) addTokens(config *Dict) {
	for name, v := range config.All() {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		if d, ok := v.(*Dict); ok {
			v, _ = d.Get("content")
		}
		if _, known := s.SpecialTokens[name]; known {
			continue
		}
		if token, ok := v.(string); ok {
			s.SpecialTokens[name] = token
		}
	}
}

// Names lists the templates, sorted.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.templates))
	for name := range s.templates {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Template returns the template for a conversation with the given tools; nil means no tools. It is
// "tool_use" if there are tools and the model has that template, and otherwise "default". If the
// model has neither or the template does not parse, the error is an [Error].
func (s *Set) Template(tools Value) (*Template, error) {
	if p, ok := s.templates["tool_use"]; ok && tools != nil {
		return p.template, p.err
	}
	if p, ok := s.templates["default"]; ok {
		return p.template, p.err
	}
	if len(s.templates) > 0 {
		return nil, invalid("this model has several chat templates and no default: %s", strings.Join(s.Names(), ", "))
	}
	return nil, invalid("this model has no chat template")
}

// Broken returns the error of the first template, by name, that does not parse, or nil.
func (s *Set) Broken() error {
	for _, name := range s.Names() {
		if err := s.templates[name].err; err != nil {
			return fmt.Errorf("chat: the template %s: %w", name, err)
		}
	}
	return nil
}
