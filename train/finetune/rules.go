package finetune

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// rules are the rules of --reward. A completion gets the sum of their rewards.
type rules []rule

// rule gives a completion its weight as a reward if it holds.
type rule struct {
	weight float64
	text   string // as the user wrote it
	name   string // without the weight
	field  string // a key of the record; "" for none
	holds  func(completion, field string) bool
}

// ruleKinds are the rules that compare with a field of the record.
var ruleKinds = map[string]func(completion, field string) bool{
	"equals":   func(c, field string) bool { return strings.TrimSpace(c) == strings.TrimSpace(field) },
	"contains": strings.Contains,
	"number":   sameNumber,
}

// parseRules parses rules: [WEIGHT*]equals=FIELD, contains=FIELD, number=FIELD or regex=PATTERN.
func parseRules(texts []string) (rules, error) {
	var all rules
	for _, text := range texts {
		r := rule{weight: 1, text: text}
		name, value, _ := strings.Cut(text, "=")
		if weight, kind, ok := strings.Cut(name, "*"); ok {
			w, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			if err != nil || math.IsNaN(w) || math.IsInf(w, 0) {
				return nil, misusef("--reward %s: got the weight %q, want a number", text, weight)
			}
			r.weight, name = w, strings.TrimSpace(kind)
		}
		switch {
		case value == "":
			return nil, misusef("--reward %s: want equals=FIELD, contains=FIELD, number=FIELD or regex=PATTERN", text)
		case name == "regex":
			p, err := regexp.Compile(value)
			if err != nil {
				return nil, misusef("--reward %s: %w", text, err)
			}
			r.holds = func(c, _ string) bool { return p.MatchString(c) }
		case ruleKinds[name] == nil:
			return nil, misusef("--reward %s: got the rule %q, want equals, contains, number or regex", text, name)
		default:
			r.field, r.holds = value, ruleKinds[name]
		}
		r.name = name + "=" + value
		all = append(all, r)
	}
	return all, nil
}

// reward returns the sum of the weights of the rules that hold, for each completion.
func (rs rules) reward(_ context.Context, prompt RewardPrompt, completions []string) ([]float64, error) {
	rewards := make([]float64, len(completions))
	fields, err := rs.fields(prompt.Record)
	if err != nil {
		return nil, err
	}
	for k, r := range rs {
		for i, c := range completions {
			if r.holds(c, fields[k]) {
				rewards[i] += r.weight
			}
		}
	}
	return rewards, nil
}

// fields returns the texts that the rules compare with, and "" for rules without a field. It
// returns an error if the record lacks a field.
func (rs rules) fields(record json.RawMessage) ([]string, error) {
	var values map[string]any
	if err := json.Unmarshal(record, &values); err != nil {
		return nil, err
	}
	texts := make([]string, len(rs))
	for k, r := range rs {
		if r.field == "" {
			continue
		}
		var err error
		if texts[k], err = fieldText(values, r.field); err != nil {
			return nil, fmt.Errorf("--reward %s: %w", r.text, err)
		}
	}
	return texts, nil
}

// fieldText returns a field of a record as text. The field must be a string, a number or a bool.
func fieldText(record map[string]any, name string) (string, error) {
	switch v := record[name].(type) {
	case string:
		return v, nil
	case float64, bool:
		return fmt.Sprint(v), nil
	case nil:
		return "", fmt.Errorf("the record has no field %q", name)
	}
	return "", fmt.Errorf("field %q of the record is an object or a list, want a text or a number", name)
}

// lastNumber matches numbers, with optional thousands separators.
var lastNumber = regexp.MustCompile(`-?\d[\d,]*(?:\.\d+)?`)

// sameNumber reports whether the last numbers of two texts are equal.
func sameNumber(completion, field string) bool {
	x, okX := numberOf(completion)
	y, okY := numberOf(field)
	return okX && okY && x == y
}

func numberOf(text string) (float64, bool) {
	all := lastNumber.FindAllString(text, -1)
	if len(all) == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(all[len(all)-1], ",", ""), 64)
	return v, err == nil
}
