//! How the build script makes the files of the page of their sources.

#[path = "../../../../src/build/bundle.rs"]
mod bundle;
#[path = "../../../../src/build/script.rs"]
mod script;

use std::collections::BTreeMap;

use self::bundle::{Bundles, Import, Module, Modules, resolve};
use self::script::{short_script, short_style};

#[test]
fn comments_and_blanks_go_and_every_line_stays() {
    let text = "// one\n  const a = 1; // two\n\n/** three\n * four */\nif (a) {\n\treturn a + -b;   \n}\nx /* y */ z;\n";
    let short = short_script(text).unwrap();
    assert_eq!(short, "\nconst a=1;\n\n\n\nif(a){\nreturn a + -b;\n}\nx z;\n");
    assert_eq!(short.lines().count(), text.lines().count());
}

#[test]
fn what_looks_like_a_comment_stays_where_it_is_none() {
    let kept = [
        r#"a="// no";"#,
        r"a='/* no */ \' // no';",
        r#"a="\\";b="  //  ";"#,
        "a=`  // no\n   /* no */ \\` ${b} \\${`;",
        "a=`x ${b?`y  ${c} // z`:\"}\"} // w`;",
        "a=`${{b:`}  //`}}  //`;",
        r"a=/[/*]\/\/  '/.test(b);",
        r"return /\/\/  `/g;",
        r"f(/  'x/,/[\]/]  /g)",
        r"a=>/  ^x$/.exec(a)",
        r"a=b / c / d;",
        r"(a)/ 2 / b;",
        r"a.of / 2 / c;",
        "a[0]/ b",
    ];
    for text in kept {
        assert_eq!(short_script(text).as_deref(), Ok(text));
    }
    assert_eq!(short_script("a = b / c; // d's").unwrap(), "a=b / c;");
    assert_eq!(short_script("a = `${b} ${ {c: 1} // d\n  }`;").unwrap(), "a=`${b} ${{c:1}\n}`;");
}

#[test]
fn a_script_that_does_not_end_is_no_script() {
    for (text, problem) in [
        ("a = 1;\nb = 'x\n'", "line 2: a string does not end"),
        ("`a ${b", "line 1: a template does not end"),
        ("a = /b", "line 1: a regular expression does not end"),
        ("\n\n/* a", "line 3: a comment does not end"),
    ] {
        assert_eq!(short_script(text).unwrap_err(), problem);
    }
}

#[test]
fn a_style_sheet_keeps_the_blanks_that_mean_something() {
    let text = "/* a */\na :hover > b, c {\n  margin: 0 calc(1px + 2px);\n  content: \"/* a */  b\"; }\n@media (a: 1px) and (b: 2px) { }\n";
    let short = "\na :hover > b,c{\nmargin:0 calc(1px + 2px);\ncontent:\"/* a */  b\";}\n@media (a:1px) and (b:2px){}\n";
    assert_eq!(short_style(text).unwrap().trim_start(), short.trim_start());
    assert!(short_style("a { content: \"").is_err());
}

/// Modules of `(path, text, imports)`; an import that begins with `?` is a later one.
fn modules(list: &[(&str, &str, &[&str])]) -> Modules {
    let module = |text: &str, imports: &[&str]| Module {
        text: short_script(text).unwrap(),
        imports: imports
            .iter()
            .map(|path| Import {
                path: path.trim_start_matches('?').to_owned(),
                is_static: !path.starts_with('?'),
            })
            .collect(),
    };
    list.iter().map(|(path, text, imports)| ((*path).to_owned(), module(text, imports))).collect()
}

fn texts(modules: &Modules) -> Result<BTreeMap<String, String>, String> {
    let texts = Bundles::new(modules, "app/main.js", |path| path.starts_with("lit/"))?.texts()?;
    Ok(texts.into_iter().map(|(path, text)| (path.to_owned(), text)).collect())
}

const MAIN: (&str, &str, &[&str]) = (
    "app/main.js",
    "import { a as b } from \"./api.js\";\nb(() => import(\"../screens/x.js\"), import(\"../screens/y.js\"));",
    &["app/api.js", "?screens/x.js", "?screens/y.js"],
);
const API: (&str, &str, &[&str]) = (
    "app/api.js",
    "import * as lit from \"../lit/l.js\";\nexport const a = 1;\nexport async function f() {}",
    &["lit/l.js"],
);
const LIT: (&str, &str, &[&str]) = ("lit/l.js", "export {x as y};", &[]);
const X: (&str, &str, &[&str]) = (
    "screens/x.js",
    "import { f } from \"../app/api.js\";\nimport { s } from \"../parts/s.js\";\nexport class C {}",
    &["app/api.js", "parts/s.js"],
);
const Y: (&str, &str, &[&str]) =
    ("screens/y.js", "import { s } from \"../parts/s.js\";\nexport const v = s;", &["parts/s.js"]);
const S: (&str, &str, &[&str]) = ("parts/s.js", "export const s = 1;", &[]);

#[test]
fn modules_that_are_always_loaded_together_are_one_file() {
    let modules = modules(&[MAIN, API, LIT, X, Y, S]);
    let bundles = Bundles::new(&modules, "app/main.js", |path| path.starts_with("lit/")).unwrap();
    assert_eq!(bundles.screens().collect::<Vec<_>>(), ["screens/x.js", "screens/y.js"]);
    let files = |path| bundles.files_of(path).unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(files("app/main.js"), ["app/main.js", "lit/l.js"]);
    assert_eq!(files("screens/x.js"), ["app/main.js", "lit/l.js", "parts/s.js", "screens/x.js"]);
    assert_eq!(files("screens/y.js"), ["parts/s.js", "screens/y.js"]);

    let texts = texts(&modules).unwrap();
    assert_eq!(
        texts.keys().collect::<Vec<_>>(),
        ["app/main.js", "parts/s.js", "screens/x.js", "screens/y.js"]
    );
    let main = "import*as $lit_l from\"../lit/l.js\";\n\
        const $app_api=(()=>{\nconst lit=$lit_l;\nconst a=1;\nasync function f(){}\nreturn{a,f};\n})();\n\
        const $app_main=(()=>{\nconst{a:b}=$app_api;\nb(()=>import(\"../screens/x.js\").then(all=>all.$screens_x),\
        import(\"../screens/y.js\").then(all=>all.$screens_y));\nreturn{};\n})();\n\
        export{$app_api,$app_main};\n";
    assert_eq!(texts["app/main.js"], main);
    let x = "import{$app_api}from\"../app/main.js\";import{$parts_s}from\"../parts/s.js\";\n\
        const $screens_x=(()=>{\nconst{f}=$app_api;\nconst{s}=$parts_s;\nclass C {}\nreturn{C};\n})();\n\
        export{$screens_x};\n";
    assert_eq!(texts["screens/x.js"], x.replace("C {}", "C{}"));
}

#[test]
fn a_module_that_cannot_be_joined_fails_the_build_by_its_name() {
    let problem = |api: (&str, &str, &[&str])| {
        let modules = modules(&[MAIN, (api.0, api.1, api.2), LIT, X, Y, S]);
        texts(&modules).unwrap_err()
    };
    for (text, imports, wanted) in [
        (
            "import * as lit from \"../lit/l.js\";\nexport let a = 1;",
            &["lit/l.js"][..],
            "app/api.js: cannot export: export let a=1;",
        ),
        (
            "import * as lit from \"../lit/l.js\";\nexport default 1;",
            &["lit/l.js"],
            "app/api.js: cannot export: export default 1;",
        ),
        (
            "import * as lit from \"../lit/l.js\";\nexport const b = 1;",
            &["lit/l.js"],
            "app/main.js: app/api.js does not export a",
        ),
        (
            "import c from \"../lit/l.js\";",
            &["lit/l.js"],
            "app/api.js: the imports must be its first lines, one each",
        ),
        (
            "a;\nimport * as c from \"../lit/l.js\";",
            &["lit/l.js"],
            "app/api.js: the imports must be its first lines, one each",
        ),
        (
            "export const a = import(\".././lit/l.js\");",
            &["?lit/l.js"],
            "app/api.js: write it as import(\"../lit/l.js\")",
        ),
    ] {
        assert_eq!(problem(("app/api.js", text, imports)), wanted);
    }
    let circle = problem(("app/api.js", "import { v } from \"./main.js\";", &["app/main.js"]));
    assert!(circle.contains("imports itself"), "{circle}");
    assert_eq!(problem(("app/other.js", "", &[])), "app/api.js is missing");
}

#[test]
fn a_path_that_leaves_the_page_names_nothing() {
    assert_eq!(resolve("screens/cue/acts.js", "../../app/api.js"), "app/api.js");
    assert_eq!(resolve("app/main.js", "../../secret"), "../secret");
}
