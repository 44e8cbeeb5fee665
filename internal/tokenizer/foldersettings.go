package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/smallfile"
)

// settings are what the small files of a model say about a tokenizer whose vocabulary is not in
// tokenizer.json: config.json, tokenizer_config.json and, in older folders, special_tokens_map.json
// and added_tokens.json.
type settings struct {
	model  string             // model_type, the outer one of a model with several
	class  string             // the tokenizer's class in transformers, without "Fast"; "" if it is not stated
	values map[string]rawPart // members of tokenizer_config.json, and of special_tokens_map.json
	order  []string           // the names of values, in the order of the files
	listed []AddedToken       // added tokens with their ids, by id
}

// readSettings reads the files. Those that do not exist count as empty.
func readSettings(fsys fs.FS) (*settings, error) {
	s := &settings{values: map[string]rawPart{}}
	var config struct {
		ModelType      string `json:"model_type"`
		TokenizerClass string `json:"tokenizer_class"`
	}
	data, err := optional(fsys, "config.json")
	if err == nil && data != nil {
		err = json.Unmarshal(pythonJSON(data), &config)
	}
	if err != nil {
		return nil, decodeError("config.json", err)
	}
	s.model, s.class = config.ModelType, config.TokenizerClass
	if err := s.merge(fsys, "tokenizer_config.json"); err != nil {
		return nil, err
	}
	_, decoder := s.values["added_tokens_decoder"]
	if !decoder {
		if err := s.merge(fsys, "special_tokens_map.json"); err != nil {
			return nil, err
		}
	}
	if class := s.text("tokenizer_class"); class != "" {
		s.class = class
	}
	s.class = strings.TrimSuffix(s.class, "Fast")
	if decoder {
		return s, s.readDecoder()
	}
	return s, s.readAdded(fsys)
}

// optional reads a small file, nil if there is none.
func optional(fsys fs.FS, name string) ([]byte, error) {
	data, err := smallfile.ReadFS(fsys, name, smallfile.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// pythonJSON replaces the numbers that Python writes and JSON does not have. Their values do not
// matter for a tokenizer.
func pythonJSON(data []byte) []byte {
	if json.Valid(data) {
		return data
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("Infinity"), []byte("0")), []byte("NaN"), []byte("0"))
}

// merge adds the members of a file to the values. Those of a later file count.
func (s *settings) merge(fsys fs.FS, name string) error {
	data, err := optional(fsys, name)
	if err != nil || data == nil {
		return err
	}
	r := newScanner(data, 0)
	err = r.Object("", func(key []byte) error {
		member := string(key)
		r.Peek()
		raw, err := r.Balanced()
		if _, known := s.values[member]; !known {
			s.order = append(s.order, member)
		}
		s.values[member] = rawPart(raw)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// text returns a member that is a string, else "".
func (s *settings) text(name string) string {
	var v string
	if json.Unmarshal(s.values[name], &v) != nil {
		return ""
	}
	return v
}

// flag returns a member that is true or false, else def.
func (s *settings) flag(name string, def bool) bool {
	var v *bool
	if json.Unmarshal(s.values[name], &v) != nil || v == nil {
		return def
	}
	return *v
}

// addedSpec is the JSON of an added token: its content, or an object.
type addedSpec struct {
	set   bool
	plain bool // a string
	AddedToken
}

// UnmarshalJSON implements json.Unmarshaler. Null leaves a unset.
func (a *addedSpec) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case string(data) == "null":
		return nil
	case data[0] == '"':
		a.set, a.plain, a.Special = true, true, true
		return json.Unmarshal(data, &a.Content)
	}
	var spec struct {
		Content    string
		SingleWord bool  `json:"single_word"`
		LStrip     bool  `json:"lstrip"`
		RStrip     bool  `json:"rstrip"`
		Normalized *bool `json:"normalized"`
		Special    bool  `json:"special"`
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	a.set = true
	a.AddedToken = AddedToken{Content: spec.Content, SingleWord: spec.SingleWord, LStrip: spec.LStrip, RStrip: spec.RStrip,
		Normalized: either(spec.Normalized, !spec.Special), Special: spec.Special}
	return nil
}

// readDecoder takes the member added_tokens_decoder: tokens by id.
func (s *settings) readDecoder() error {
	var byID map[string]addedSpec
	if err := json.Unmarshal(s.values["added_tokens_decoder"], &byID); err != nil {
		return decodeError("tokenizer_config.json: added_tokens_decoder", err)
	}
	for text, a := range byID {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || id < 0 || !a.set {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: got %.40q with %.40q, want an id and a token", text, a.Content)
		}
		a.ID = int32(id)
		s.listed = append(s.listed, a.AddedToken)
	}
	slices.SortFunc(s.listed, func(a, b AddedToken) int { return int(a.ID) - int(b.ID) })
	return nil
}

// readAdded takes the older file added_tokens.json: ids by token.
func (s *settings) readAdded(fsys fs.FS) error {
	data, err := optional(fsys, "added_tokens.json")
	if err != nil || data == nil {
		return err
	}
	special := map[string]bool{}
	for _, name := range roles {
		if a, _, _ := s.token(name, ""); a.set {
			special[a.Content] = true
		}
	}
	extra, err := s.extra()
	if err != nil {
		return err
	}
	for _, a := range extra {
		special[a.Content] = true
	}
	r := newScanner(data, 0)
	err = r.Object("", func(key []byte) error {
		token := string(key)
		id, err := r.id()
		s.listed = append(s.listed, AddedToken{ID: id, Content: token, Special: special[token], Normalized: !special[token]})
		return err
	})
	if err != nil {
		return fmt.Errorf("added_tokens.json: %w", err)
	}
	slices.SortStableFunc(s.listed, func(a, b AddedToken) int { return int(a.ID) - int(b.ID) })
	return nil
}

// roles are the special tokens that a tokenizer may name, in the order in which they get ids.
var roles = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// token returns the special token of a role. def is its content where the files do not state it, ""
// for none. stated reports whether they do; null is a statement, too.
func (s *settings) token(role, def string) (a addedSpec, stated bool, err error) {
	raw, stated := s.values[role]
	if !stated {
		return addedSpec{set: def != "", plain: true, AddedToken: AddedToken{Content: def, Special: true}}, false, nil
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, true, decodeError("tokenizer_config.json: "+role, err)
	}
	return a, true, nil
}

// extra returns the special tokens without a role.
func (s *settings) extra() ([]addedSpec, error) {
	var list []addedSpec
	for _, name := range []string{"extra_special_tokens", "additional_special_tokens"} {
		raw := bytes.TrimSpace(s.values[name])
		if len(raw) == 0 || raw[0] != '[' {
			continue
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, decodeError("tokenizer_config.json: "+name, err)
		}
		if len(list) > 0 {
			break
		}
	}
	return list, nil
}

// named returns the special tokens of other members than [roles] whose names end in _token, and of
// extra_special_tokens if that is an object.
func (s *settings) named() ([]addedSpec, error) {
	var list []addedSpec
	for _, name := range s.order {
		var a addedSpec
		if strings.HasSuffix(name, "_token") && !slices.Contains(roles, name) && json.Unmarshal(s.values[name], &a) == nil && a.set && a.plain {
			list = append(list, a)
		}
	}
	raw := bytes.TrimSpace(s.values["extra_special_tokens"])
	if len(raw) == 0 || raw[0] != '{' {
		return list, nil
	}
	r := newScanner(raw, 0)
	err := r.Object("", func([]byte) error {
		r.Peek()
		value, err := r.Balanced()
		if err != nil {
			return err
		}
		var a addedSpec
		if err := json.Unmarshal(value, &a); err != nil {
			return err
		}
		if a.set {
			list = append(list, a)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: extra_special_tokens: %w", err)
	}
	return list, nil
}
