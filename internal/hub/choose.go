package hub

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/hubcache"
)

const (
	configName  = "config.json"
	quantName   = "hf_quant_config.json"
	shardSuffix = ".safetensors"
	indexSuffix = ".safetensors.index.json"
	singleName  = "model" + shardSuffix
	indexName   = "model" + indexSuffix
)

// besides are patterns ([matches]) of the files besides the weights that serving reads. They
// contain no wildcard for folders.
var besides = []string{
	configName, quantName, "generation_config.json", "quantize_config.json", "quantization_config.json", "adapter_config.json",
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "vocab.txt", "*.model", "*.tiktoken", "tekken.json",
	"chat_template.json", "chat_template.jinja", "additional_chat_templates/*.jinja",
	"modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json",
}

// forServing returns the names that serving needs: files besides the weights, and the index or the
// files of the weights.
func forServing(names []string) (first []string, weights weightFiles) {
	for _, name := range names {
		for _, pattern := range besides {
			if strings.Count(name, "/") == strings.Count(pattern, "/") && matches(pattern, name) {
				first = append(first, name)
				break
			}
		}
	}
	weights = findWeights(names)
	if weights.index != "" {
		first = append(first, weights.index)
	}
	return first, weights
}

// weightFiles are the files of a model's weights: the shards of an index, or single files.
type weightFiles struct {
	index  string
	shards []string
}

// findWeights selects the weights as package loader does, so that nothing is fetched that is not
// opened, such as a second copy in other shards.
func findWeights(names []string) weightFiles {
	var shards, indexes []string
	for _, name := range names {
		switch {
		case strings.Contains(name, "/"), strings.HasPrefix(name, "."):
		case strings.HasSuffix(name, indexSuffix):
			indexes = append(indexes, name)
		case strings.HasSuffix(name, shardSuffix):
			shards = append(shards, name)
		}
	}
	slices.Sort(shards)
	switch {
	case slices.Contains(shards, singleName):
		return weightFiles{shards: []string{singleName}}
	case slices.Contains(indexes, indexName):
		return weightFiles{index: indexName}
	case len(indexes) == 1:
		return weightFiles{index: indexes[0]}
	}
	return weightFiles{shards: shards}
}

// readIndex returns the shards that an index names, in order.
func readIndex(text []byte) ([]string, error) {
	var index struct {
		Weights map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, &Error{Kind: Corrupt, Reason: "the index of the shards cannot be read", Err: err}
	}
	seen := map[string]bool{}
	for _, shard := range index.Weights {
		if !seen[shard] {
			if strings.Contains(shard, "/") || hubcache.UnsafePath(shard) != "" || !strings.HasSuffix(shard, shardSuffix) {
				return nil, failf(Corrupt, "the index names the shard %s, which is not a safetensors file beside it", printable(shard))
			}
			seen[shard] = true
		}
	}
	if len(seen) == 0 {
		return nil, failf(Corrupt, "the index names no shard")
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// noWeights returns an error that says what a repository has instead of safetensors files.
func noWeights(names []string) error {
	has := func(suffixes ...string) string {
		for _, name := range names {
			for _, suffix := range suffixes {
				if strings.HasSuffix(strings.ToLower(name), suffix) {
					return name
				}
			}
		}
		return ""
	}
	if name := has(".gguf"); name != "" {
		return failf(NoWeights, "no safetensors file, but %s: pull a GGUF file by its type, such as ORG/NAME:Q4_K_M", printable(name))
	}
	if name := has(".bin", ".pt", ".pth", ".ckpt"); name != "" {
		return failf(NoWeights, "no safetensors file, but %s: pickle files are not read; look for a revision refs/pr/N that adds safetensors",
			printable(name))
	}
	return failf(NoWeights, "no safetensors file in it")
}

// filter returns the names that match a pattern of include (all names if there is none) and no
// pattern of exclude.
func filter(names, include, exclude []string) []string {
	some := func(patterns []string, name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
	}
	var kept []string
	for _, name := range names {
		if (len(include) == 0 || some(include, name)) && !some(exclude, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// matches reports whether a name matches a shell pattern: * is any text with slashes, ? one
// character, [a-z] and [!a-z] one of a set. A pattern that ends in a slash matches a whole folder.
// These are the rules of the Python package huggingface_hub.
func matches(pattern, name string) bool {
	if strings.HasSuffix(pattern, "/") {
		pattern += "*"
	}
	return glob([]rune(pattern), []rune(name))
}

// glob takes time proportional to the product of the lengths: after a mismatch only the last star
// takes one more character.
func glob(pattern, name []rune) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, n
			p++
			continue
		}
		if width, ok := one(pattern[p:], name[n]); ok {
			p, n = p+width, n+1
			continue
		}
		if star < 0 {
			return false
		}
		from++
		p, n = star+1, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one matches a character with the beginning of a pattern, and returns the length of that
// beginning.
func one(pattern []rune, r rune) (width int, ok bool) {
	if len(pattern) == 0 {
		return 0, false
	}
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		if width, ok, set := oneOf(pattern, r); set {
			return width, ok
		}
	}
	return 1, pattern[0] == r
}

// oneOf matches a set. Without a closing bracket it is not a set.
func oneOf(pattern []rune, r rune) (width int, ok, set bool) {
	i, not := 1, false
	if i < len(pattern) && pattern[i] == '!' {
		i, not = i+1, true
	}
	for first := i; i < len(pattern); i++ {
		if pattern[i] == ']' && i > first {
			return i + 1, ok != not, true
		}
		low, high := pattern[i], pattern[i]
		if i+2 < len(pattern) && pattern[i+1] == '-' && pattern[i+2] != ']' {
			high = pattern[i+2]
			i += 2
		}
		ok = ok || low <= r && r <= high
	}
	return 0, false, false
}

// checkPatterns rejects patterns that cannot match any file of a repository.
func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if p == "" || strings.ContainsAny(p, "\\\x00") || path.IsAbs(p) {
			return failf(BadName, "the pattern %q matches no file of a repository", p)
		}
	}
	return nil
}
