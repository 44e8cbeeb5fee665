package batches

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
)

// usage is how many tokens the lines of a batch have taken, as OpenAI's batches show it.
type usage struct {
	Input        int           `json:"input_tokens"`
	InputDetails inputDetails  `json:"input_tokens_details"`
	Output       int           `json:"output_tokens"`
	OutDetails   outputDetails `json:"output_tokens_details"`
	Total        int           `json:"total_tokens"`
}

type inputDetails struct {
	Cached int `json:"cached_tokens"`
}

type outputDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

// spending is what the answers of a batch say of models and tokens.
type spending struct {
	model string // of the first answer; "" if there is none yet
	usage usage
}

// add counts the answer of an endpoint, which says its tokens in the words of responses or in those of the others.
func (s *spending) add(body []byte) {
	var a struct {
		Model string `json:"model"`
		Usage struct {
			usage
			Prompt            int           `json:"prompt_tokens"`
			PromptDetails     inputDetails  `json:"prompt_tokens_details"`
			Completion        int           `json:"completion_tokens"`
			CompletionDetails outputDetails `json:"completion_tokens_details"`
		} `json:"usage"`
	}
	if json.Unmarshal(body, &a) != nil {
		return // the body is not of this server
	}
	if s.model == "" {
		s.model = a.Model
	}
	s.usage.Input += a.Usage.Input + a.Usage.Prompt
	s.usage.InputDetails.Cached += a.Usage.InputDetails.Cached + a.Usage.PromptDetails.Cached
	s.usage.Output += a.Usage.Output + a.Usage.Completion
	s.usage.OutDetails.Reasoning += a.Usage.OutDetails.Reasoning + a.Usage.CompletionDetails.Reasoning
	s.usage.Total += a.Usage.Total
}

// recover counts the answers that an earlier process has written to a file of size bytes. It holds one of them in memory.
func (s *spending) recover(f *os.File, size int64) {
	in := bufio.NewReader(io.NewSectionReader(f, 0, size))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // a fault of the disk shows when results are written
		}
		var r result
		if json.Unmarshal(line, &r) == nil && r.Response != nil {
			s.add(r.Response.Body)
		}
	}
}

// into shows what was spent, if a line has an answer.
func (s *spending) into(b *batch) {
	if s.model != "" {
		b.Model, b.Usage = &s.model, &s.usage
	}
}
