//! Modules, libraries, kernels, and linking. Any image is taken: a function is its name.

use std::collections::HashMap;
use std::ffi::{CString, c_char};

use super::driver_functions;
use crate::call::Call;
use crate::driver::{Function, Handle, Module};
use crate::ffi::{In, Name, Opaque, Out};
use crate::status::{Answer, Status};

/// What an image begins with that is refused, for tests of errors.
const REFUSED: &[u8] = b"invalid";

/// Attributes of every function (cuda.h: `CUfunction_attribute`); others are 0.
const FUNCTION_ATTRIBUTES: &[(i32, i32)] = &[(0, 1024), (4, 32), (5, 90), (6, 90), (9, -1)];

driver_functions! {
    Call fn cuModuleLoad(call, module: Out<Handle>, file: Name) {
        let context = call.context()?;
        std::fs::metadata(file.get()?).map_err(|_| Status::FILE_NOT_FOUND)?;
        make(call, module, Some(context))
    }

    Call fn cuModuleLoadData(call, module: Out<Handle>, image: In<u8>) {
        load(call, module, image)
    }

    Call fn cuModuleLoadDataEx(
        call, module: Out<Handle>, image: In<u8>, _count: u32, _options: Opaque, _values: Opaque,
    ) {
        load(call, module, image)
    }

    Call fn cuModuleLoadFatBinary(call, module: Out<Handle>, image: In<u8>) {
        load(call, module, image)
    }

    Call fn cuModuleUnload(call, module: Handle) {
        unload(call, module)
    }

    Get fn cuModuleGetLoadingMode(_call, mode: Out<i32>) {
        mode.put(1)
    }

    Get fn cuModuleGetFunction(call, function: Out<Handle>, module: Handle, name: Name) {
        let found = find(call, module, name)?;
        function.put(found)
    }

    Get fn cuModuleGetGlobal_v2(
        call, _address: Out<u64>, _bytes: Out<usize>, module: Handle, name: Name,
    ) {
        // No image is read, so there are no variables.
        known(call, module)?;
        name.get()?;
        Err(Status::NOT_FOUND)
    }

    Call fn cuLibraryLoadData(
        call, library: Out<Handle>, code: In<u8>, _jit: Opaque, _jit_values: Opaque,
        _jit_count: u32, _options: Opaque, _values: Opaque, _count: u32,
    ) {
        check(code)?;
        make(call, library, None)
    }

    Call fn cuLibraryLoadFromFile(
        call, library: Out<Handle>, file: Name, _jit: Opaque, _jit_values: Opaque,
        _jit_count: u32, _options: Opaque, _values: Opaque, _count: u32,
    ) {
        std::fs::metadata(file.get()?).map_err(|_| Status::FILE_NOT_FOUND)?;
        make(call, library, None)
    }

    Call fn cuLibraryUnload(call, library: Handle) {
        unload(call, library)
    }

    Get fn cuLibraryGetKernel(call, kernel: Out<Handle>, library: Handle, name: Name) {
        let found = find(call, library, name)?;
        kernel.put(found)
    }

    Get fn cuLibraryGetModule(call, module: Out<Handle>, library: Handle) {
        known(call, library)?;
        module.put(library)
    }

    Get fn cuLibraryGetGlobal(
        call, _address: Out<u64>, _bytes: Out<usize>, library: Handle, name: Name,
    ) {
        known(call, library)?;
        name.get()?;
        Err(Status::NOT_FOUND)
    }

    Get fn cuKernelGetFunction(call, function: Out<Handle>, kernel: Handle) {
        call.context()?;
        of(call, kernel)?;
        function.put(kernel)
    }

    Get fn cuKernelGetLibrary(call, library: Out<Handle>, kernel: Handle) {
        library.put(of(call, kernel)?.module)
    }

    Get fn cuKernelGetName(call, name: Out<*const c_char>, kernel: Handle) {
        name.put(of(call, kernel)?.name.as_ptr())
    }

    Get fn cuKernelGetAttribute(
        call, value: Out<i32>, attribute: i32, kernel: Handle, device: i32,
    ) {
        call.device(device)?;
        value.put(attribute_of(call, kernel, attribute)?)
    }

    Call fn cuKernelSetAttribute(call, attribute: i32, value: i32, kernel: Handle, device: i32) {
        call.device(device)?;
        set_attribute(call, kernel, attribute, value)
    }

    Call fn cuKernelSetCacheConfig(call, kernel: Handle, _config: u32, device: i32) {
        call.device(device)?;
        of(call, kernel).map(drop)
    }

    Get fn cuFuncGetName(call, name: Out<*const c_char>, function: Handle) {
        name.put(of(call, function)?.name.as_ptr())
    }

    Get fn cuFuncGetModule(call, module: Out<Handle>, function: Handle) {
        module.put(of(call, function)?.module)
    }

    Get fn cuFuncGetAttribute(call, value: Out<i32>, attribute: i32, function: Handle) {
        value.put(attribute_of(call, function, attribute)?)
    }

    Call fn cuFuncSetAttribute(call, function: Handle, attribute: i32, value: i32) {
        set_attribute(call, function, attribute, value)
    }

    Call fn cuFuncSetCacheConfig(call, function: Handle, _config: u32) {
        of(call, function).map(drop)
    }

    Call fn cuFuncSetSharedMemConfig(call, function: Handle, _config: u32) {
        of(call, function).map(drop)
    }

    Call fn cuFuncIsLoaded(call, state: Out<i32>, function: Handle) {
        of(call, function)?;
        state.put(1)
    }

    Call fn cuFuncLoad(call, function: Handle) {
        of(call, function).map(drop)
    }

    Call [cuLinkCreate_v2] fn cuLinkCreate(
        call, _count: u32, _options: Opaque, _values: Opaque, link: Out<Handle>,
    ) {
        call.context()?;
        let handle = call.handle();
        call.links.insert(handle, Vec::new());
        link.put(handle)
    }

    Call [cuLinkAddData_v2] fn cuLinkAddData(
        call, link: Handle, _kind: u32, data: In<u8>, size: usize, _name: Opaque, _count: u32,
        _options: Opaque, _values: Opaque,
    ) {
        let data = data.all(size)?;
        call.links.get_mut(&link).ok_or(Status::INVALID_HANDLE)?.extend(data);
        Ok(())
    }

    Call fn cuLinkComplete(call, link: Handle, image: Out<*const u8>, size: Out<usize>) {
        let linked = call.links.get(&link).ok_or(Status::INVALID_HANDLE)?;
        image.put(linked.as_ptr())?;
        size.put_if_wanted(linked.len());
        Ok(())
    }

    Call fn cuLinkDestroy(call, link: Handle) {
        call.links.remove(&link).map(drop).ok_or(Status::INVALID_HANDLE)
    }
}

fn load(call: &mut Call, module: Out<Handle>, image: In<u8>) -> Answer {
    let context = call.context()?;
    check(image)?;
    make(call, module, Some(context))
}

/// Refuses null and an image for tests of errors. Reads no further than it must: images of
/// different kinds have different ends.
fn check(image: In<u8>) -> Answer {
    let mut same = 0;
    while same < REFUSED.len() && image.at(same)? == REFUSED[same] {
        same += 1;
    }
    if same == REFUSED.len() { Err(Status::INVALID_IMAGE) } else { Ok(()) }
}

fn make(call: &mut Call, module: Out<Handle>, context: Option<Handle>) -> Answer {
    let handle = call.handle();
    call.modules.insert(handle, Module { context, functions: HashMap::new() });
    module.put(handle)
}

fn unload(call: &mut Call, module: Handle) -> Answer {
    call.modules.remove(&module).ok_or(Status::INVALID_HANDLE)?;
    call.functions.retain(|_, function| function.module != module);
    Ok(())
}

fn known(call: &Call, module: Handle) -> Answer {
    call.modules.get(&module).map(drop).ok_or(Status::INVALID_HANDLE)
}

/// A function of a module, always the same for the same name.
fn find(call: &mut Call, module: Handle, name: Name) -> Result<Handle, Status> {
    let name = name.get()?;
    let known = call.modules.get(&module).ok_or(Status::INVALID_HANDLE)?;
    if let Some(function) = known.functions.get(&name) {
        return Ok(*function);
    }
    if name.is_empty() {
        return Err(Status::NOT_FOUND);
    }
    let handle = call.handle();
    let text = CString::new(name.clone()).expect("a name from C has no zero byte in it");
    call.functions.insert(handle, Function { module, name: text, attributes: HashMap::new() });
    let known = call.modules.get_mut(&module).expect("it is there");
    known.functions.insert(name, handle);
    Ok(handle)
}

/// A function or a kernel, which are the same here.
pub(super) fn of(call: &Call, function: Handle) -> Result<&Function, Status> {
    call.functions.get(&function).ok_or(Status::INVALID_HANDLE)
}

fn attribute_of(call: &Call, function: Handle, attribute: i32) -> Result<i32, Status> {
    if let Some(set) = of(call, function)?.attributes.get(&attribute) {
        return Ok(*set);
    }
    let known = FUNCTION_ATTRIBUTES.iter().find(|known| known.0 == attribute);
    Ok(known.map_or(0, |known| known.1))
}

fn set_attribute(call: &mut Call, function: Handle, attribute: i32, value: i32) -> Answer {
    let function = call.functions.get_mut(&function).ok_or(Status::INVALID_HANDLE)?;
    function.attributes.insert(attribute, value);
    Ok(())
}
