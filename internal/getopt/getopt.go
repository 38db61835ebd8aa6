// Package getopt parses command lines as getopt_long(3) does, for programs that
// replace C programs. It accepts -e -s 64, -es64, --size 64, --size=64 and
// --si=64, operands in any position, and -- before operands that start with a
// dash.
package getopt

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// An Option is one option in its two forms.
type Option struct {
	Short byte   // 0 when there is none
	Long  string // "" when there is none
	Arg   string // name of the argument in the usage text; "" when there is none
	Help  string
	Set   func(value string) error // value is "" for an option without an argument
}

// New returns an Option.
func New(short byte, long, arg, help string, set func(string) error) Option {
	return Option{short, long, arg, help, set}
}

// Short returns an Option without a long form, as in getopt(3).
func Short(short byte, arg, help string, set func(string) error) Option {
	return Option{short, "", arg, help, set}
}

func (o *Option) String() string {
	switch {
	case o.Long == "":
		return fmt.Sprintf("-%c", o.Short)
	case o.Short == 0:
		return "--" + o.Long
	}
	return fmt.Sprintf("-%c, --%s", o.Short, o.Long)
}

// ErrHelp is returned for -h or --help if the program has no such option.
var ErrHelp = errors.New("getopt: help requested")

// IsHelp reports whether an argument requests help: -h, -help or --help.
func IsHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

// Parse calls Set for each option in args, in order, and returns the operands.
func Parse(args []string, options []Option) (operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), nil
		case strings.HasPrefix(arg, "--"):
			args, err = parseLong(arg[2:], args, options)
		case len(arg) > 1 && arg[0] == '-':
			args, err = parseShort(arg[1:], args, options)
		default:
			operands = append(operands, arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return operands, nil
}

// parseLong parses one long option. It takes the option's argument from args if
// the option needs one and none is attached, and returns the remaining args.
func parseLong(arg string, args []string, options []Option) ([]string, error) {
	name, value, attached := strings.Cut(arg, "=")
	o, err := findLong(name, options)
	if err != nil {
		return nil, err
	}
	if o.Arg == "" && attached {
		return nil, fmt.Errorf("option %v accepts no argument", o)
	}
	if o.Arg != "" && !attached {
		if len(args) == 0 {
			return nil, fmt.Errorf("option %v needs an argument: <%s>", o, o.Arg)
		}
		value, args = args[0], args[1:]
	}
	return args, o.set(value)
}

// findLong finds an option by its long name or by an unambiguous prefix of it.
func findLong(name string, options []Option) (*Option, error) {
	var found []string
	var match *Option
	for i := range options {
		o := &options[i]
		if o.Long == "" {
			continue
		}
		if o.Long == name {
			return o, nil
		}
		if strings.HasPrefix(o.Long, name) {
			match = o
			found = append(found, "--"+o.Long)
		}
	}
	switch {
	case len(found) == 1:
		return match, nil
	case len(found) > 1:
		return nil, fmt.Errorf("option --%s is ambiguous: %s", name, strings.Join(found, ", "))
	case name == "help":
		return nil, ErrHelp
	}
	return nil, fmt.Errorf("unknown option --%s%s", name, suggestion(name, options))
}

// suggestion returns a hint at the most similar long name, or "" if none is
// similar.
func suggestion(name string, options []Option) string {
	nearest, least := "", len(name)/3+1
	for i := range options {
		if d := distance(name, options[i].Long); options[i].Long != "" && d < least {
			nearest, least = options[i].Long, d
		}
	}
	if nearest == "" {
		return ""
	}
	return ": did you mean --" + nearest + "?"
}

// distance returns the Levenshtein distance between a and b. A dash and an
// underscore count as equal.
func distance(a, b string) int {
	a, b = strings.ReplaceAll(a, "_", "-"), strings.ReplaceAll(b, "_", "-")
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// parseShort parses the short options in letters. If the last one needs an
// argument and none is attached, parseShort takes it from args. It returns the
// remaining args.
func parseShort(letters string, args []string, options []Option) ([]string, error) {
	for letters != "" {
		o, err := findShort(letters[0], options)
		if err != nil {
			return nil, err
		}
		letters = letters[1:]
		value := ""
		if o.Arg != "" {
			if letters == "" {
				if len(args) == 0 {
					return nil, fmt.Errorf("option %v needs an argument: <%s>", o, o.Arg)
				}
				letters, args = args[0], args[1:]
			}
			value, letters = letters, ""
		}
		if err := o.set(value); err != nil {
			return nil, err
		}
	}
	return args, nil
}

func findShort(letter byte, options []Option) (*Option, error) {
	for i := range options {
		if options[i].Short == letter && letter != 0 {
			return &options[i], nil
		}
	}
	if letter == 'h' {
		return nil, ErrHelp
	}
	return nil, fmt.Errorf("unknown option -%c", letter)
}

func (o *Option) set(value string) error {
	if err := o.Set(value); err != nil {
		return fmt.Errorf("option %v: %w", o, err)
	}
	return nil
}

// Usage writes one line for each option.
func Usage(w io.Writer, options []Option) error {
	for i := range options {
		o := &options[i]
		name := o.String()
		if o.Short == 0 {
			name = "    " + name
		}
		switch {
		case o.Arg != "" && o.Long == "":
			name += " <" + o.Arg + ">"
		case o.Arg != "":
			name += "=<" + o.Arg + ">"
		}
		if _, err := fmt.Fprintf(w, "  %-22s %s\n", name, o.Help); err != nil {
			return err
		}
	}
	return nil
}
