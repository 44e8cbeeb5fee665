package openaijson

import "github.com/heftai/heft/api/internal/schema"

// A ChatTool describes the form of a tool in a request of chat completions. The tool is in an
// object whose name is the tool's type.
type ChatTool struct{}

// Samples implements schema.Sampler.
func (ChatTool) Samples() []any {
	return []any{
		schema.Like{Value: struct {
			Type     string   `json:"type" enum:"function"`
			Function function `json:"function"`
		}{}},
		schema.Like{Value: struct {
			Type   string `json:"type" enum:"custom"`
			Custom struct {
				named
				Format chatFormat `json:"format,omitempty"`
			} `json:"custom"`
		}{}},
	}
}

// A Tool describes the form of a tool in a request of the Responses API.
type Tool struct{}

// Samples implements schema.Sampler.
func (Tool) Samples() []any {
	return append(tool{}.Samples(), schema.Like{Value: struct {
		Type string `json:"type" enum:"namespace"`
		named
		Tools []tool `json:"tools"`
	}{}}, schema.Like{Value: struct {
		Type   string `json:"type" enum:"web_search"`
		Access bool   `json:"external_web_access"` // must be false: true returns 400
	}{}})
}

// tool is a function or a custom tool.
type tool struct{}

func (tool) Samples() []any {
	return []any{
		schema.Like{Value: struct {
			Type string `json:"type" enum:"function"`
			function
		}{}},
		schema.Like{Value: struct {
			Type string `json:"type" enum:"custom"`
			named
			Format format `json:"format,omitempty"`
		}{}},
	}
}

type named struct {
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
}

type function struct {
	named
	Parameters map[string]any `json:"parameters,omitempty"`
	Strict     *bool          `json:"strict,omitempty"`
}

// anyText is the format of a custom tool that takes any text.
type anyText struct {
	Type string `json:"type" enum:"text"`
}

// grammar restricts the texts for a custom tool.
type grammar struct {
	Syntax     string `json:"syntax" enum:"lark,regex"`
	Definition string `json:"definition"`
}

type format struct{}

func (format) Samples() []any {
	return []any{schema.Like{Value: anyText{}}, schema.Like{Value: struct {
		Type string `json:"type" enum:"grammar"`
		grammar
	}{}}}
}

// chatFormat describes the form of a format in chat completions. Syntax and definition are in an
// inner grammar or, as some clients send them, in the format itself.
type chatFormat struct{}

func (chatFormat) Samples() []any {
	return append(format{}.Samples(), schema.Like{Value: struct {
		Type    string  `json:"type" enum:"grammar"`
		Grammar grammar `json:"grammar"`
	}{}})
}
