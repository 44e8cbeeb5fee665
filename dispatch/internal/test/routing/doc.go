// Package routing holds tests only: recordings of which experts tokens choose, and what package dispatch predicts from them.
package routing
