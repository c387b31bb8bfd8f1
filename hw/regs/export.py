"""Compiles card.rdl with the reference compiler and writes what it says as JSON.

    export.py card.rdl card.json [HEADERS]

With HEADERS, a folder, it also writes the C headers of PeakRDL there, by which ours are judged.
"""

import json
import sys

from systemrdl import RDLCompileError, RDLCompiler
from systemrdl.node import FieldNode, Node, RegNode

# What is at addresses, and what lies in memory.
MAPS = ("card", "memory")

# Properties that are said of a field when they are not what most fields have.
UNUSUAL = ("onread", "onwrite", "swmod", "singlepulse", "from_board")


def main(source: str, target: str, headers: str | None = None) -> None:
    compiler = RDLCompiler()
    compiler.compile_file(source)
    roots = [compiler.elaborate(top_def_name=name) for name in MAPS]
    model = Model()
    for root in roots:
        model.add_map(root.top)
    with open(target, "w", encoding="utf-8") as file:
        file.write(laid_out(vars(model)) + "\n")
    if headers is not None:
        from peakrdl_cheader.exporter import CHeaderExporter

        for name, root in zip(MAPS, roots):
            CHeaderExporter().export(root, f"{headers}/{name}.h", reuse_typedefs=False)


def laid_out(value: object, indent: str = "") -> str:
    """JSON with what fits on a line on one line, so that changes are seen."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 120 or not isinstance(value, (dict, list)):
        return line
    deeper = indent + " "
    if isinstance(value, list):
        parts, ends = [laid_out(part, deeper) for part in value], "[]"
    else:
        parts = [f"{json.dumps(key)}: {laid_out(part, deeper)}" for key, part in value.items()]
        ends = "{}"
    between = f",\n{deeper}"
    return f"{ends[0]}\n{deeper}{between.join(parts)}\n{indent}{ends[1]}"


class Model:
    """Maps with what lies in them; the types of blocks, each once; enumerations; and every
    register of every map with the address that the compiler gives it."""

    def __init__(self) -> None:
        self.maps: list[dict] = []
        self.types: list[dict] = []
        self.enums: list[dict] = []
        self.registers: list[dict] = []

    def add_map(self, top: Node) -> None:
        self.maps.append({**self.described(top), "size": top.size, "items": self.items(top)})
        for register in top.descendants(unroll=True):
            if isinstance(register, RegNode):
                path = register.get_path().removeprefix(f"{top.inst_name}.")
                address = register.absolute_address
                self.registers.append({"map": top.inst_name, "path": path, "address": address})

    def described(self, node: Node) -> dict:
        return {"name": node.inst_name, "description": node.get_property("desc") or ""}

    def items(self, block: Node) -> list[dict]:
        return [self.item(child) for child in block.children()]

    def item(self, node: Node) -> dict:
        item = {**self.described(node), "offset": node.raw_address_offset}
        if node.is_array:
            (count,) = node.array_dimensions
            item["array"] = {"count": count, "stride": node.array_stride}
        if isinstance(node, RegNode):
            item["width"] = node.get_property("regwidth")
            item["fields"] = [self.field(field) for field in node.fields()]
        else:
            item["type"] = self.block_type(node)
        return item

    def block_type(self, node: Node) -> str:
        name = node.orig_type_name or node.type_name
        # Of the type, not of this block, which may have a description of its own.
        description = (node.inst.original_def or node.inst).properties.get("desc")
        kind = {
            "name": name,
            "description": description.get_value() if description else "",
            "size": node.size,
            "items": self.items(node),
        }
        self.add(self.types, kind)
        return name

    def field(self, field: FieldNode) -> dict:
        described = {
            **self.described(field),
            "low": field.low,
            "high": field.high,
            "software": field.get_property("sw").name,
            "hardware": field.get_property("hw").name,
            "reset": field.get_property("reset"),
        }
        for name in UNUSUAL:
            value = field.get_property(name)
            if value not in (None, False):
                described[name] = getattr(value, "name", value)
        encoding = field.get_property("encode")
        if encoding is not None:
            members = [
                {"name": member.name, "value": member.value, "description": member.rdl_desc or ""}
                for member in encoding
            ]
            self.add(self.enums, {"name": encoding.type_name, "members": members})
            described["enum"] = encoding.type_name
        return described

    @staticmethod
    def add(known: list[dict], new: dict) -> None:
        """Adds what has a name, once; the same name for something else is a mistake."""
        for other in known:
            if other["name"] == new["name"]:
                if other != new:
                    sys.exit(f"{new['name']} is not the same everywhere")
                return
        known.append(new)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RDLCompileError as error:
        sys.exit(f"the register map does not compile: {error}")
