// Package api is Heft's HTTP server: routes, the checks in front of them, metrics and the
// page at /.
//
// New wires it. The dialects are packages of their own, api/openai today, and share
// api/generate; what stands here is the same for all: who may ask, how long a body may
// be, what a panic answers, and how things are (/health, /ready, /metrics, /plan,
// /version). It knows no weights and no tokens.
package api
