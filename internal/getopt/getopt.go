// Package getopt reads command lines as getopt_long(3) does, for programs that
// take the place of C programs: -e -s 64, -es64, --size 64, --size=64, --si=64,
// operands anywhere, and -- before operands that begin with a dash.
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
	Arg   string // what the argument is, for the usage text; "" when it takes none
	Help  string
	Set   func(value string) error // the value is "" for an option without argument
}

// New makes an Option.
func New(short byte, long, arg, help string, set func(string) error) Option {
	return Option{short, long, arg, help, set}
}

// Short makes an Option without a long form, as of getopt(3).
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

// ErrHelp says that -h or --help was given, and is no option of the program.
var ErrHelp = errors.New("getopt: help asked for")

// Parse calls Set for each option in args, in order, and returns what is no
// option.
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

// parseLong takes one long option, and its argument from args when that is an
// argument of its own. It returns the rest.
func parseLong(arg string, args []string, options []Option) ([]string, error) {
	name, value, attached := strings.Cut(arg, "=")
	o, err := findLong(name, options)
	if err != nil {
		return nil, err
	}
	if o.Arg == "" && attached {
		return nil, fmt.Errorf("option %v takes no argument", o)
	}
	if o.Arg != "" && !attached {
		if len(args) == 0 {
			return nil, fmt.Errorf("option %v needs an argument: <%s>", o, o.Arg)
		}
		value, args = args[0], args[1:]
	}
	return args, o.set(value)
}

// findLong finds an option by its long name, or by a beginning of it that no
// other name has.
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
	return nil, fmt.Errorf("unknown option --%s%s", name, meant(name, options))
}

// meant asks whether the nearest long name was meant, if one is near.
func meant(name string, options []Option) string {
	nearest, least := "", len(name)/3+1
	for i := range options {
		if d := distance(name, options[i].Long); options[i].Long != "" && d < least {
			nearest, least = options[i].Long, d
		}
	}
	if nearest == "" {
		return ""
	}
	return ": is it --" + nearest + "?"
}

// distance counts the letters to change, add and take away to make b of a. A dash
// and an underscore are the same.
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

// parseShort takes the short options of one argument, and for the last of them
// its argument from args when none is attached. It returns the rest.
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

// Usage writes a line for each option.
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
